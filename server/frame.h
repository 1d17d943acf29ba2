// SPDX-License-Identifier: Apache-2.0
// Tensor bytes to wire messages, without copying them.
//
// The payload is the last field of its message, so a message is its other
// fields followed by slices of the memory that the tensor lies in; any
// generated stub parses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attnbias/v1/service.pb.h"
#include "core/checksum/crc32c.h"
#include "core/engine/payload.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace attnbias {

template <typename Message>
grpc::ByteBuffer Serialized(const Message& message) {
  grpc::ByteBuffer bytes;
  bool own_buffer = false;
  (void)grpc::SerializationTraits<Message>::Serialize(message, &bytes,
                                                      &own_buffer);
  return bytes;
}

// What stands before the bytes of a field.
std::string TagAndLength(int field, size_t length);

// A Response with the header and its checksum alone, serialised.
template <typename Response, typename Header>
std::string SerializeHeader(const Header& header) {
  const size_t size = header.ByteSizeLong();
  std::string fields = TagAndLength(Response::kHeaderFieldNumber, size);
  header.AppendToString(&fields);
  Response checksum;
  checksum.set_header_crc32c(
      Crc32c(fields.data() + fields.size() - size, size));
  checksum.AppendToString(&fields);
  return fields;
}

template <typename Response, typename Header>
grpc::ByteBuffer FrameHeader(const Header& header) {
  const grpc::Slice fields(SerializeHeader<Response>(header));
  return grpc::ByteBuffer(&fields, 1);
}

// Appends slices of the chunk's memory, which keep it alive; gives their size
// in bytes.
int64_t AppendBytes(const Chunk& chunk, std::vector<grpc::Slice>* slices);

// `fields`, serialised, and `chunk` as the bytes of `data_field`. The message
// keeps the chunk's memory alive until it has been sent.
grpc::ByteBuffer AppendData(std::string_view fields, int data_field,
                            const Chunk& chunk);

// `header`, which SerializeHeader has made, if any, and `response` with the
// chunk's checksum and bytes.
template <typename Response>
grpc::ByteBuffer FrameChunk(Response response, const Chunk& chunk,
                            std::string header = "") {
  response.set_crc32c(chunk.crc32c);
  response.AppendToString(&header);
  return AppendData(header, Response::kDataFieldNumber, chunk);
}

}  // namespace attnbias
