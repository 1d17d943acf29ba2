// SPDX-License-Identifier: Apache-2.0
// Reads one StreamTensorResponse out of gRPC's slices: the payload goes
// straight to its place and is checksummed while it is in the cache. A
// DescribeTensorResponse is read alike: it has its fields under the same
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
  int64_t offset = 0;
  // Bytes of `data`, now at the front of the room.
  int64_t size = 0;
};

// Whether the payload is to be in the caches afterwards.
enum class Placement { kCached, kStreamed };

// DATA_LOSS if the message is malformed, has more data than `room` or does not
// match its checksums; the room's contents are then unspecified. A header
// without one, from an older server, is taken as it is. Consumes `message`.
absl::StatusOr<Chunk> ReadChunk(grpc::ByteBuffer* message,
                                absl::Span<std::byte> room,
                                Placement placement);

// The header of a message that may have payload too, to find room for that: as
// ReadChunk has it, but `message` stays as it is.
absl::StatusOr<std::optional<v1::TensorHeader>> ReadHeader(
    grpc::ByteBuffer* message);

}  // namespace attnbias
