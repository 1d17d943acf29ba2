// SPDX-License-Identifier: Apache-2.0
// Tensor bytes to wire messages, without copying them.
//
// The payload is the last field of its message, so a message is a header
// written by hand followed by slices of the memory that the tensor lies in; any
// generated stub parses it.
#ifndef ATTNBIAS_SERVER_FRAME_H_
#define ATTNBIAS_SERVER_FRAME_H_

#include <cstdint>
#include <string_view>

#include "attnbias/v1/service.pb.h"
#include "core/engine/payload.h"
#include "grpcpp/support/byte_buffer.h"

namespace attnbias {

// A StreamTensorResponse with the header alone.
grpc::ByteBuffer FrameStreamHeader(const v1::TensorHeader& header);

// A StreamTensorResponse with `chunk`, which begins at `offset`. The message
// keeps the chunk's memory alive until it has been sent.
grpc::ByteBuffer FrameStreamChunk(const Chunk& chunk, int64_t offset);

// A GetTensorResponse. `header` is a serialised TensorHeader.
grpc::ByteBuffer FrameTensor(std::string_view header, const Chunk& chunk);

// A ComputeLogitsResponse with the header alone.
grpc::ByteBuffer FrameLogitsHeader(const v1::LogitsHeader& header);

// A ComputeLogitsResponse with `chunk`, which begins at `offset` of the answer
// to the rows from `first_row` on.
grpc::ByteBuffer FrameLogitsChunk(const Chunk& chunk, int64_t first_row,
                                  int64_t offset);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_FRAME_H_
