// SPDX-License-Identifier: Apache-2.0
// Reads a StreamTensorResponse from gRPC's slices: copies the payload into place and checksums it
// while it is in the cache. Also reads a DescribeTensorResponse, whose fields have the same
// numbers.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attnbias/v1/service.pb.h"

namespace attnbias {

struct Chunk {
  std::optional<v1::TensorHeader> header;
  std::optional<uint32_t> request_crc32c;
  int64_t offset = 0;
  // Number of bytes in `data`, which ReadChunk has copied to the front of `room`.
  int64_t size = 0;
};

// Selects whether the payload stays in the processor's caches.
enum class Placement { kCached, kStreamed };

// Reads and consumes a message. DATA_LOSS if the message is malformed, has more data than fits in
// `room`, or does not match its checksums; the contents of `room` are then unspecified.
absl::StatusOr<Chunk> ReadChunk(grpc::ByteBuffer* message, absl::Span<std::byte> room,
                                Placement placement);

// Reads the header of a message that may also have a payload, before memory for the payload is
// reserved. Returns the same errors as ReadChunk, and DATA_LOSS if the message has no header or
// answers a request with a different CRC-32C. Does not consume `message`.
absl::StatusOr<v1::TensorHeader> ReadHeader(grpc::ByteBuffer* message, uint32_t request_crc32c);

}  // namespace attnbias
