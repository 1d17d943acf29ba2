// SPDX-License-Identifier: Apache-2.0
// Tensor bytes to wire messages, without copying them.
//
// The payload is the last field of its message, so a message is its other
// fields followed by slices of the memory that the tensor lies in; any
// generated stub parses it.
#ifndef ATTNBIAS_SERVER_FRAME_H_
#define ATTNBIAS_SERVER_FRAME_H_

#include <string_view>
#include <utility>

#include "attnbias/v1/service.pb.h"
#include "core/engine/payload.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/byte_buffer.h"

namespace attnbias {

template <typename Message>
grpc::ByteBuffer Serialized(const Message& message) {
  grpc::ByteBuffer bytes;
  bool own_buffer = false;
  (void)grpc::SerializationTraits<Message>::Serialize(message, &bytes,
                                                      &own_buffer);
  return bytes;
}

// A Response with the header alone.
template <typename Response, typename Header>
grpc::ByteBuffer FrameHeader(Header header) {
  Response response;
  *response.mutable_header() = std::move(header);
  return Serialized(response);
}

// `fields`, serialised, and `chunk` as the bytes of `data_field`. The message
// keeps the chunk's memory alive until it has been sent.
grpc::ByteBuffer AppendData(std::string_view fields, int data_field,
                            const Chunk& chunk);

// `response` with the chunk's checksum and bytes.
template <typename Response>
grpc::ByteBuffer FrameChunk(Response response, const Chunk& chunk) {
  response.set_crc32c(chunk.crc32c);
  return AppendData(response.SerializeAsString(), Response::kDataFieldNumber,
                    chunk);
}

// A GetTensorResponse. `header` is a serialised TensorHeader.
grpc::ByteBuffer FrameTensor(std::string_view header, const Chunk& chunk);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_FRAME_H_
