// SPDX-License-Identifier: Apache-2.0
#include "server/frame.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/slice.h"

namespace attnbias {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;

// More than the fields before `data` can take, without the TensorHeader.
constexpr size_t kMaxFieldBytes = 64;

uint8_t* AppendTag(int field, WireFormatLite::WireType type, uint8_t* at) {
  return CodedOutputStream::WriteTagToArray(
      WireFormatLite::MakeTag(field, type), at);
}

uint8_t* AppendLength(int field, size_t length, uint8_t* at) {
  at = AppendTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED, at);
  return CodedOutputStream::WriteVarint64ToArray(length, at);
}

uint8_t* AppendInteger(int field, int64_t value, uint8_t* at) {
  at = AppendTag(field, WireFormatLite::WIRETYPE_VARINT, at);
  return CodedOutputStream::WriteVarint64ToArray(value, at);
}

uint8_t* AppendChecksum(int field, uint32_t crc32c, uint8_t* at) {
  at = AppendTag(field, WireFormatLite::WIRETYPE_FIXED32, at);
  return CodedOutputStream::WriteLittleEndian32ToArray(crc32c, at);
}

void ReleaseOwner(void* owner) {
  delete static_cast<std::shared_ptr<const void>*>(owner);
}

// `fields` and then the chunk's pieces, referenced through one count.
grpc::ByteBuffer Join(const uint8_t* fields, size_t size, const Chunk& chunk) {
  std::vector<grpc::Slice> slices;
  slices.reserve(1 + chunk.pieces.size());
  slices.emplace_back(fields, size);
  const grpc::Slice memory(const_cast<std::byte*>(chunk.memory.data()),
                           chunk.memory.size(), &ReleaseOwner,
                           new std::shared_ptr<const void>(chunk.owner));
  for (absl::Span<const std::byte> piece : chunk.pieces) {
    const size_t begin = piece.data() - chunk.memory.data();
    slices.push_back(memory.sub(begin, begin + piece.size()));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

size_t SizeOf(const Chunk& chunk) {
  size_t size = 0;
  for (absl::Span<const std::byte> piece : chunk.pieces) size += piece.size();
  return size;
}

// A message whose only field is `header`.
grpc::ByteBuffer FrameMessage(int field,
                              const google::protobuf::MessageLite& header) {
  const size_t size = header.ByteSizeLong();
  std::string bytes(kMaxFieldBytes + size, '\0');
  auto* const begin = reinterpret_cast<uint8_t*>(bytes.data());
  uint8_t* at = AppendLength(field, size, begin);
  at = header.SerializeWithCachedSizesToArray(at);
  const grpc::Slice slice(begin, at - begin);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

grpc::ByteBuffer FrameStreamHeader(const v1::TensorHeader& header) {
  return FrameMessage(v1::StreamTensorResponse::kHeaderFieldNumber, header);
}

grpc::ByteBuffer FrameStreamChunk(const Chunk& chunk, int64_t offset) {
  using Response = v1::StreamTensorResponse;
  uint8_t fields[kMaxFieldBytes];
  uint8_t* at = AppendInteger(Response::kOffsetFieldNumber, offset, fields);
  at = AppendChecksum(Response::kCrc32CFieldNumber, chunk.crc32c, at);
  at = AppendLength(Response::kDataFieldNumber, SizeOf(chunk), at);
  return Join(fields, at - fields, chunk);
}

grpc::ByteBuffer FrameTensor(std::string_view header, const Chunk& chunk) {
  using Response = v1::GetTensorResponse;
  std::string bytes(2 * kMaxFieldBytes + header.size(), '\0');
  auto* const begin = reinterpret_cast<uint8_t*>(bytes.data());
  uint8_t* at =
      AppendLength(Response::kHeaderFieldNumber, header.size(), begin);
  at = std::copy(header.begin(), header.end(), at);
  at = AppendChecksum(Response::kCrc32CFieldNumber, chunk.crc32c, at);
  at = AppendLength(Response::kDataFieldNumber, SizeOf(chunk), at);
  return Join(begin, at - begin, chunk);
}

grpc::ByteBuffer FrameLogitsHeader(const v1::LogitsHeader& header) {
  return FrameMessage(v1::ComputeLogitsResponse::kHeaderFieldNumber, header);
}

grpc::ByteBuffer FrameLogitsChunk(const Chunk& chunk, int64_t first_row,
                                  int64_t offset) {
  using Response = v1::ComputeLogitsResponse;
  uint8_t fields[kMaxFieldBytes];
  uint8_t* at = AppendInteger(Response::kOffsetFieldNumber, offset, fields);
  at = AppendChecksum(Response::kCrc32CFieldNumber, chunk.crc32c, at);
  at = AppendInteger(Response::kFirstRowFieldNumber, first_row, at);
  at = AppendLength(Response::kDataFieldNumber, SizeOf(chunk), at);
  return Join(fields, at - fields, chunk);
}

}  // namespace attnbias
