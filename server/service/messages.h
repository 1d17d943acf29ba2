// SPDX-License-Identifier: Apache-2.0
// Message limits, which docs/protocol.md documents. Parses requests and serializes responses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"
#include "core/base/errors.h"
#include "core/checksum/crc32c.h"
#include "core/engine/payload.h"
#include "core/engine/plan.h"
#include "core/logits/plan.h"
#include "google/protobuf/message.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "grpcpp/support/slice.h"

namespace attnbias {

// gRPC rejects larger requests.
inline constexpr int kMaxRequestBytes = 8 << 20;

// Maximum size of a message that stock clients accept, and the maximum payload that leaves room for
// a header.
inline constexpr int64_t kMaxUnaryResponseBytes = int64_t{4} << 20;
inline constexpr int64_t kMaxUnaryBytes = kMaxUnaryResponseBytes - (int64_t{64} << 10);

// Maximum size in bytes of a response's fields other than the header and the data.
inline constexpr int64_t kFramingBytes = 64;
// The data of a message with a header begins at a multiple of this.
inline constexpr size_t kDataAlignment = 16;

inline constexpr int64_t kMinChunkBytes = 4096;
inline constexpr int64_t kDefaultChunkBytes = int64_t{1} << 20;
inline constexpr int64_t kMaxChunkBytes = int64_t{2} << 20;

// Properties of a message that has not been decoded.
struct Measured {
  // Approximate upper bound on the decoded size: an empty two-byte element becomes an object, and a
  // one-byte number takes sixteen bytes. Includes nothing after the first invalid byte.
  int64_t decoded_bytes = 0;
  // True if each field ends inside its message. Protobuf's parser allocates up to 50 MB for a
  // string that claims to extend past the end.
  bool is_whole = false;
};

// Measures the message of type `type` in `bytes`.
Measured Measure(const grpc::ByteBuffer& bytes, const google::protobuf::Descriptor& type);

// Returns UNIMPLEMENTED if the message has, at any depth, a field or an enum value that its
// descriptor does not define. The error names the path, the number and this server's version. If
// the server ignored such fields, a newer client would receive only part of the requested tensor.
absl::Status CheckKnown(const google::protobuf::Message& message);

// Parses a message after `hold(size)` has reserved memory for it. Returns INVALID_ARGUMENT if the
// bytes are invalid, or an error from `hold` or CheckKnown.
template <typename Message, typename Hold>
absl::StatusOr<Message> ParseRequest(const grpc::ByteBuffer& bytes, Hold hold) {
  const Measured measured = Measure(bytes, *Message::descriptor());
  ATTNBIAS_RETURN_IF_ERROR(hold(measured.decoded_bytes));
  Message message;
  grpc::ByteBuffer copy(bytes);  // copies references to the bytes; parsing empties it
  grpc::ProtoBufferReader reader(&copy);
  // An unbounded parser allocates the length that a field claims, up to 50 MB.
  if (!measured.is_whole || !reader.status().ok() ||
      !message.ParseFromBoundedZeroCopyStream(&reader, static_cast<int>(bytes.Length()))) {
    return Invalid("request: not a serialized ", Message::descriptor()->name());
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckKnown(message));
  return message;
}

// Returns the CRC-32C of a request's bytes, by which the client recognizes the response.
uint32_t ChecksumOf(const grpc::ByteBuffer& request);

v1::TensorHeader HeaderOf(const Plan& plan);
v1::LogitsHeader HeaderOf(const LogitsPlan& plan);

// Responses. A tensor's bytes are the last field of the message and are not copied: a message
// consists of its other fields, followed by slices of the tensor's memory. Any generated stub can
// parse it.

template <typename Message>
grpc::ByteBuffer Serialized(const Message& message) {
  grpc::ByteBuffer bytes;
  bool own_buffer = false;
  (void)grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own_buffer);
  return bytes;
}

// Returns the bytes that precede the contents of a field.
std::string TagAndLength(int field, size_t length);

// Serializes a Response that has only the header and the checksums of the header and the request.
template <typename Response, typename Header>
std::string SerializeHeader(const Header& header, uint32_t request_crc32c) {
  const size_t size = header.ByteSizeLong();
  std::string fields = TagAndLength(Response::kHeaderFieldNumber, size);
  header.AppendToString(&fields);
  Response checksums;
  checksums.set_header_crc32c(Crc32c(fields.data() + fields.size() - size, size));
  checksums.set_request_crc32c(request_crc32c);
  checksums.AppendToString(&fields);
  return fields;
}

template <typename Response, typename Header>
grpc::ByteBuffer FrameHeader(const Header& header, uint32_t request_crc32c) {
  const grpc::Slice fields(SerializeHeader<Response>(header, request_crc32c));
  return grpc::ByteBuffer(&fields, 1);
}

// Appends slices of the chunk's memory, which keep that memory alive. Returns their size in bytes.
int64_t AppendBytes(const Chunk& chunk, std::vector<grpc::Slice>* slices);

// Returns a message: serialized `fields`, then padding if `aligned`, then `chunk` as the bytes of
// `data_field`. The message keeps the chunk's memory alive until it has been sent.
grpc::ByteBuffer AppendData(std::string fields, int data_field, const Chunk& chunk,
                            bool aligned = false);

// Serializes a message: `header`, as returned by SerializeHeader, then `response`, then the chunk's
// checksum and bytes.
template <typename Response>
grpc::ByteBuffer FrameChunk(Response response, const Chunk& chunk, std::string_view header = "") {
  response.set_crc32c(chunk.crc32c);
  std::string fields;
  fields.reserve(header.size() + kFramingBytes);
  fields += header;
  response.AppendToString(&fields);
  return AppendData(std::move(fields), Response::kDataFieldNumber, chunk, !header.empty());
}

}  // namespace attnbias
