// SPDX-License-Identifier: Apache-2.0
#include "server/frame.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace attnbias {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;

void ReleaseOwner(void* owner) {
  delete static_cast<std::shared_ptr<const void>*>(owner);
}

}  // namespace

std::string TagAndLength(int field, size_t length) {
  // Two varints.
  uint8_t bytes[20];
  uint8_t* at = CodedOutputStream::WriteTagToArray(
      WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED),
      bytes);
  at = CodedOutputStream::WriteVarint64ToArray(length, at);
  return {bytes, at};
}

int64_t AppendBytes(const Chunk& chunk, std::vector<grpc::Slice>* slices) {
  // All pieces are referenced through one count.
  const grpc::Slice memory(const_cast<std::byte*>(chunk.memory.data()),
                           chunk.memory.size(), &ReleaseOwner,
                           new std::shared_ptr<const void>(chunk.owner));
  int64_t size = 0;
  for (absl::Span<const std::byte> piece : chunk.pieces) {
    const size_t offset = piece.data() - chunk.memory.data();
    slices->push_back(memory.sub(offset, offset + piece.size()));
    size += static_cast<int64_t>(piece.size());
  }
  return size;
}

grpc::ByteBuffer AppendData(std::string_view fields, int data_field,
                            const Chunk& chunk) {
  std::vector<grpc::Slice> slices;
  slices.reserve(1 + chunk.pieces.size());
  slices.emplace_back();
  const int64_t size = AppendBytes(chunk, &slices);
  slices.front() =
      grpc::Slice(std::string(fields) + TagAndLength(data_field, size));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace attnbias
