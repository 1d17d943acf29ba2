// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/chunk.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/checksum/crc32c.h"

namespace attnbias {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr uint32_t kHeaderTag = WireFormatLite::MakeTag(
    v1::StreamTensorResponse::kHeaderFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
constexpr uint32_t kOffsetTag = WireFormatLite::MakeTag(
    v1::StreamTensorResponse::kOffsetFieldNumber, WireFormatLite::WIRETYPE_VARINT);
constexpr uint32_t kCrcTag = WireFormatLite::MakeTag(v1::StreamTensorResponse::kCrc32CFieldNumber,
                                                     WireFormatLite::WIRETYPE_FIXED32);
constexpr uint32_t kHeaderCrcTag = WireFormatLite::MakeTag(
    v1::StreamTensorResponse::kHeaderCrc32CFieldNumber, WireFormatLite::WIRETYPE_FIXED32);
constexpr uint32_t kRequestCrcTag = WireFormatLite::MakeTag(
    v1::StreamTensorResponse::kRequestCrc32CFieldNumber, WireFormatLite::WIRETYPE_FIXED32);
constexpr uint32_t kDataTag = WireFormatLite::MakeTag(v1::StreamTensorResponse::kDataFieldNumber,
                                                      WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

absl::Status Malformed() { return absl::DataLossError("message: not a valid protobuf message"); }

std::string Hex(std::optional<uint32_t> crc) {
  return crc.has_value() ? absl::StrCat(absl::Hex(*crc, absl::kZeroPad8)) : "none";
}

void PlainCopy(std::byte* to, const std::byte* from, size_t size) { std::memcpy(to, from, size); }

// Copies with non-temporal stores: writes `to` without reading it first, which saves a third of the
// memory traffic and evicts nothing. For payloads larger than the caches.
void StreamingCopy(std::byte* to, const std::byte* from, size_t size) {
#if defined(__SSE2__)
  constexpr size_t kLine = 64;
  const size_t past_line = reinterpret_cast<uintptr_t>(to) % kLine;
  size_t at = std::min(size, (kLine - past_line) % kLine);
  PlainCopy(to, from, at);
  for (; size - at >= kLine; at += kLine) {
    for (size_t word = at; word < at + kLine; word += sizeof(__m128i)) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + word),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + word)));
    }
  }
  PlainCopy(to + at, from + at, size - at);
  _mm_sfence();
#else
  PlainCopy(to, from, size);
#endif
}

class ChunkReader {
 public:
  // Skips the payload if `room` is unset.
  ChunkReader(CodedInputStream* in, std::optional<absl::Span<std::byte>> room, Placement placement)
      : in_(*in),
        room_(room),
        copy_(placement == Placement::kStreamed ? &StreamingCopy : &PlainCopy) {}

  absl::StatusOr<Chunk> Read() {
    while (const uint32_t tag = in_.ReadTag()) {
      if (!ReadField(tag)) return error_;
    }
    if (!in_.ConsumedEntireMessage()) return error_;
    if (room_.has_value() && computed_crc_ != sent_crc_) {
      return absl::DataLossError(absl::StrCat("chunk: ", chunk_.size, " bytes at offset ",
                                              chunk_.offset, " have CRC-32C ", Hex(computed_crc_),
                                              ", want ", Hex(sent_crc_)));
    }
    if (header_.has_value()) {
      const absl::Status status = ParseHeader();
      if (!status.ok()) return status;
    }
    return std::move(chunk_);
  }

 private:
  // Returns false if the field is rejected; error_ is then the reason.
  bool ReadField(uint32_t tag) {
    switch (tag) {
      case kHeaderTag:
        return ReadHeader();
      case kOffsetTag: {
        uint64_t offset = 0;
        const bool is_read = in_.ReadVarint64(&offset);
        chunk_.offset = static_cast<int64_t>(offset);
        return is_read;
      }
      case kCrcTag:
        return in_.ReadLittleEndian32(&sent_crc_);
      case kHeaderCrcTag:
        return in_.ReadLittleEndian32(&sent_header_crc_.emplace());
      case kRequestCrcTag:
        return in_.ReadLittleEndian32(&chunk_.request_crc32c.emplace());
      case kDataTag:
        return ReadData();
      default:
        return WireFormatLite::SkipField(&in_, tag);
    }
  }

  // Reads into a string, because parsing a message from a stream that ends early does not fail.
  // Merges repeated occurrences of the header, as protobuf does.
  bool ReadHeader() {
    uint32_t size = 0;
    std::string piece;
    if (!in_.ReadVarint32(&size) || !in_.ReadString(&piece, static_cast<int>(size))) {
      return false;
    }
    header_ = header_.value_or("") + piece;
    return true;
  }

  absl::Status ParseHeader() {
    const std::string& header = *header_;
    const uint32_t crc = Crc32c(header.data(), header.size());
    if (sent_header_crc_ != crc) {
      return absl::DataLossError(
          absl::StrCat("header: got CRC-32C ", Hex(crc), ", want ", Hex(sent_header_crc_)));
    }
    return chunk_.header.emplace().ParseFromString(header) ? absl::OkStatus() : Malformed();
  }

  // The last of several occurrences wins, as in protobuf.
  bool ReadData() {
    uint32_t size = 0;
    if (!in_.ReadVarint32(&size)) return false;
    if (!room_.has_value()) return in_.Skip(static_cast<int>(size));
    if (size > room_->size()) {
      error_ = absl::DataLossError(absl::StrCat(
          "chunk: got ", size, " bytes of data, want at most the ", room_->size(), " remaining"));
      return false;
    }
    chunk_.size = size;
    computed_crc_ = 0;
    for (std::byte* to = room_->data(); size > 0;) {
      const void* from = nullptr;
      int run = 0;
      if (!in_.GetDirectBufferPointer(&from, &run)) return false;
      run = static_cast<int>(std::min<uint32_t>(run, size));
      computed_crc_ = ExtendCrc32c(computed_crc_, from, run);
      copy_(to, static_cast<const std::byte*>(from), run);
      in_.Skip(run);
      to += run;
      size -= run;
    }
    return true;
  }

  CodedInputStream& in_;
  const std::optional<absl::Span<std::byte>> room_;
  void (*const copy_)(std::byte*, const std::byte*, size_t);
  absl::Status error_ = Malformed();
  Chunk chunk_;
  uint32_t sent_crc_ = 0;
  uint32_t computed_crc_ = 0;
  std::optional<uint32_t> sent_header_crc_;
  std::optional<std::string> header_;
};

}  // namespace

absl::StatusOr<Chunk> ReadChunk(grpc::ByteBuffer* message, absl::Span<std::byte> room,
                                Placement placement) {
  grpc::ProtoBufferReader slices(message);
  if (!slices.status().ok()) return Malformed();
  CodedInputStream in(&slices);
  return ChunkReader(&in, room, placement).Read();
}

absl::StatusOr<v1::TensorHeader> ReadHeader(grpc::ByteBuffer* message, uint32_t request_crc32c) {
  grpc::ProtoBufferReader slices(message);
  if (!slices.status().ok()) return Malformed();
  CodedInputStream in(&slices);
  absl::StatusOr<Chunk> chunk = ChunkReader(&in, std::nullopt, Placement::kCached).Read();
  if (!chunk.ok()) return chunk.status();
  if (!chunk->header.has_value()) {
    return absl::DataLossError("stream: the first message has no header");
  }
  if (chunk->request_crc32c != request_crc32c) {
    return absl::DataLossError(absl::StrCat("request_crc32c: got ", Hex(chunk->request_crc32c),
                                            ", want ", Hex(request_crc32c)));
  }
  return *std::move(chunk->header);
}

}  // namespace attnbias
