// SPDX-License-Identifier: Apache-2.0
#include "server/codec/decoded_size.h"

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace attnbias {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// An object, what points to it, and what the allocator adds.
constexpr int64_t kObjectBytes = 256;
// A list grows by doubling.
constexpr int64_t kNumberBytes = 2 * 8;
// What protobuf itself accepts.
constexpr int kMostDepth = 100;

class Walker {
 public:
  explicit Walker(CodedInputStream* in) : in_(*in) {}

  // The fields up to the stream's limit; false where they do not end there.
  bool Walk(const Descriptor& type, int depth) {
    if (depth > kMostDepth) return false;
    size_ += kObjectBytes;
    while (const uint32_t tag = in_.ReadTag()) {
      const int number = WireFormatLite::GetTagFieldNumber(tag);
      const FieldDescriptor* field = type.FindFieldByNumber(number);
      const auto wire_type = WireFormatLite::GetTagWireType(tag);
      if (wire_type != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
        if (!WireFormatLite::SkipField(&in_, tag)) return false;
        size_ += kNumberBytes;
      } else if (!WalkBytes(field, depth)) {
        return false;
      }
    }
    return in_.BytesUntilLimit() == 0;
  }

  int64_t size() const { return size_; }

 private:
  // A field of so many bytes: a message, packed numbers or a string.
  bool WalkBytes(const FieldDescriptor* field, int depth) {
    uint32_t length = 0;
    if (!in_.ReadVarint32(&length)) return false;
    // What only claims to be there takes nothing.
    if (static_cast<int64_t>(length) > in_.BytesUntilLimit()) return false;
    if (field != nullptr && field->message_type() != nullptr) {
      const auto outer = in_.PushLimit(static_cast<int>(length));
      const bool whole = Walk(*field->message_type(), depth + 1);
      in_.PopLimit(outer);
      return whole;
    }
    const bool is_packed = field != nullptr && field->is_packable();
    size_ += is_packed ? length / ShortestOf(*field) * kNumberBytes
                       : kObjectBytes + length;
    return in_.Skip(static_cast<int>(length));
  }

  // Bytes of a packed number.
  static int64_t ShortestOf(const FieldDescriptor& field) {
    switch (WireFormatLite::WireTypeForFieldType(
        static_cast<WireFormatLite::FieldType>(field.type()))) {
      case WireFormatLite::WIRETYPE_FIXED64:
        return 8;
      case WireFormatLite::WIRETYPE_FIXED32:
        return 4;
      default:
        return 1;
    }
  }

  CodedInputStream& in_;
  int64_t size_ = 0;
};

struct Walked {
  int64_t size = 0;
  bool whole = false;
};

Walked WalkAll(const grpc::ByteBuffer& bytes, const Descriptor& type) {
  grpc::ByteBuffer copy(bytes);  // of references
  grpc::ProtoBufferReader reader(&copy);
  CodedInputStream in(&reader);
  in.PushLimit(static_cast<int>(bytes.Length()));
  Walker walker(&in);
  const bool whole = walker.Walk(type, 0);
  return {.size = walker.size(), .whole = whole};
}

}  // namespace

int64_t DecodedSize(const grpc::ByteBuffer& bytes, const Descriptor& type) {
  return WalkAll(bytes, type).size;
}

bool FieldsEndInside(const grpc::ByteBuffer& bytes, const Descriptor& type) {
  return WalkAll(bytes, type).whole;
}

}  // namespace attnbias
