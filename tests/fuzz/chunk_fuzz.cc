// SPDX-License-Identifier: Apache-2.0
// A stream message as the C++ client reads it: if the checksums match, the client accepts what
// protobuf's own parser accepts, with the same result.
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "client/cpp/src/chunk.h"
#include "client/cpp/src/header.h"
#include "core/checksum/crc32c.h"
#include "tests/fuzz/message_mutator.h"

namespace attnbias {
namespace {

constexpr size_t kRoom = 1000;
constexpr int64_t kMaxTensorBytes = int64_t{1} << 40;

uint32_t ChecksumOf(std::string_view data) { return Crc32c(data.data(), data.size()); }

// Returns three slices, so that fields span slice boundaries.
grpc::ByteBuffer Sliced(std::string_view bytes) {
  std::vector<grpc::Slice> slices;
  const size_t step = bytes.size() / 3 + 1;
  for (size_t at = 0; at < bytes.size(); at += step) {
    const std::string_view piece = bytes.substr(at, step);
    slices.emplace_back(piece.data(), piece.size());
  }
  return {slices.data(), slices.size()};
}

// Returns whether the header's checksum does not match its bytes, or the bytes differ from
// protobuf's serialization and are therefore unknown here.
bool HasOtherHeader(const v1::StreamTensorResponse& message, std::string_view bytes) {
  if (!message.has_header()) return false;
  const std::string header = message.header().SerializeAsString();
  return !message.has_header_crc32c() || message.header_crc32c() != ChecksumOf(header) ||
         bytes.find(header) == std::string_view::npos;
}

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckParts(const v1::TensorHeader& header) {
  if (!CheckHeader(header, kMaxTensorBytes).ok()) return;
  Require(header.total_bytes() >= 0 && header.total_bytes() <= kMaxTensorBytes);
  for (const v1::TensorPart& part : header.parts()) {
    Require(part.offset() >= 0 && part.size_bytes() >= 0 &&
            part.offset() + part.size_bytes() <= header.total_bytes());
  }
}

void Compare(std::string_view bytes, Placement placement) {
  v1::StreamTensorResponse wanted;
  const bool parses = wanted.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  std::vector<std::byte> room(kRoom);
  grpc::ByteBuffer message = Sliced(bytes);
  const absl::StatusOr<Chunk> chunk = ReadChunk(&message, absl::MakeSpan(room), placement);
  if (!chunk.ok()) {
    // The first of two data fields may be too large.
    const bool once = wanted.ByteSizeLong() == bytes.size();
    Require(!parses || !once || wanted.data().size() > kRoom ||
            wanted.crc32c() != ChecksumOf(wanted.data()) || HasOtherHeader(wanted, bytes));
    return;
  }
  // The client reads overlong tags nevertheless.
  if (!parses) return;
  Require(chunk->offset == wanted.offset());
  Require(wanted.data() == std::string_view(reinterpret_cast<const char*>(room.data()),
                                            static_cast<size_t>(chunk->size)));
  Require(chunk->header.has_value() == wanted.has_header());
  if (chunk->header.has_value()) CheckParts(*chunk->header);
}

}  // namespace
}  // namespace attnbias

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  attnbias::v1::StreamTensorResponse message;
  size = attnbias::MutateMessage(&message, data, size, max_size, seed);
  // Almost no random change passes the checksum.
  if (seed % 8 == 0 || !message.ParseFromArray(data, static_cast<int>(size))) {
    return size;
  }
  message.set_crc32c(attnbias::ChecksumOf(message.data()));
  if (message.has_header()) {
    message.set_header_crc32c(attnbias::ChecksumOf(message.header().SerializeAsString()));
  }
  if (message.ByteSizeLong() > max_size) return size;
  size = message.ByteSizeLong();
  message.SerializeToArray(data, static_cast<int>(size));
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  attnbias::Compare(bytes, attnbias::Placement::kCached);
  attnbias::Compare(bytes, attnbias::Placement::kStreamed);
  return 0;
}
