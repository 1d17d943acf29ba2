// SPDX-License-Identifier: Apache-2.0
#include "server/service/messages.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/unknown_field_set.h"
#include "google/protobuf/wire_format_lite.h"

namespace attnbias {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

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

struct Unknown {
  // From the message in which it was looked for; empty for that message.
  std::string path;
  std::string what;
};

std::optional<Unknown> FindUnknown(const Message& message);

// In one message or enum; `index` is its place in a repeated field.
std::optional<Unknown> FindUnknown(const Message& message,
                                   const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return FindUnknown(
        field.is_repeated()
            ? reflection.GetRepeatedMessage(message, &field, index)
            : reflection.GetMessage(message, &field));
  }
  const int value =
      field.is_repeated()
          ? reflection.GetRepeatedEnumValue(message, &field, index)
          : reflection.GetEnumValue(message, &field);
  if (field.enum_type()->FindValueByNumber(value) != nullptr) {
    return std::nullopt;
  }
  return Unknown{"", absl::StrCat("enum value ", value)};
}

std::optional<Unknown> FindUnknown(const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const auto& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    return Unknown{"",
                   absl::StrCat("field number ", unknown.field(0).number())};
  }
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE &&
        field->cpp_type() != FieldDescriptor::CPPTYPE_ENUM) {
      continue;
    }
    const int count =
        field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      std::optional<Unknown> found = FindUnknown(message, *field, i);
      if (!found.has_value()) continue;
      found->path = absl::StrCat(
          field->name(), field->is_repeated() ? absl::StrCat("[", i, "]") : "",
          found->path.empty() ? "" : ".", found->path);
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace

Measured Measure(const grpc::ByteBuffer& bytes, const Descriptor& type) {
  grpc::ByteBuffer copy(bytes);  // of references
  grpc::ProtoBufferReader reader(&copy);
  CodedInputStream in(&reader);
  in.PushLimit(static_cast<int>(bytes.Length()));
  Walker walker(&in);
  const bool is_whole = walker.Walk(type, 0);
  return {.decoded_bytes = walker.size(), .is_whole = is_whole};
}

absl::Status CheckKnown(const Message& message) {
  const std::optional<Unknown> found = FindUnknown(message);
  if (!found.has_value()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      found->path.empty() ? "request" : found->path, ": ", found->what,
      " is not known to this server, version ", ATTNBIAS_VERSION));
}

namespace {

void Describe(const Part& part, const Plan& plan, v1::TensorPart* header) {
  header->set_name(std::string(part.name));
  header->set_data_type(static_cast<v1::DataType>(plan.data_type()));
  header->set_form(part.form);
  header->mutable_shape()->Assign(part.shape.begin(), part.shape.end());
  header->set_offset(part.offset);
  header->set_size_bytes(part.size_bytes);
  if (part.form == v1::FORM_TOEPLITZ) {
    // The least key minus the greatest query.
    header->set_first_relative_position(plan.window().keys.hull().begin -
                                        (plan.window().queries.hull().end - 1));
  }
}

void ReleaseOwner(void* owner) {
  delete static_cast<std::shared_ptr<const void>*>(owner);
}

}  // namespace

v1::TensorHeader HeaderOf(const Plan& plan) {
  v1::TensorHeader header;
  for (const Part& part : plan.parts()) {
    Describe(part, plan, header.add_parts());
  }
  header.set_total_bytes(plan.total_bytes());
  header.set_fingerprint(plan.fingerprint());
  header.set_encoding_fingerprint(plan.encoding_fingerprint());
  *header.mutable_resolved_spec() = plan.resolved_spec();
  for (const Range rows : plan.fully_masked_rows()) {
    v1::Range& masked = *header.add_fully_masked_rows();
    masked.set_begin(rows.begin);
    masked.set_end(rows.end);
  }
  const std::vector<int32_t> column_axes = plan.ColumnAxes();
  header.mutable_column_axes()->Assign(column_axes.begin(), column_axes.end());
  if (plan.encoding().derive == nullptr) return header;
  for (const DerivedValue& value : plan.encoding().derive()) {
    v1::DerivedValue& derived = *header.add_derived();
    derived.set_name(std::string(value.name));
    derived.mutable_values()->Assign(value.values.begin(), value.values.end());
  }
  return header;
}

v1::LogitsHeader HeaderOf(const LogitsPlan& plan) {
  v1::LogitsHeader header;
  header.set_num_heads(plan.spec().num_heads());
  header.set_width(plan.output_width());
  header.set_data_type(plan.spec().output_data_type());
  header.set_query_offset(plan.query_offset());
  header.set_work_data_type(static_cast<v1::DataType>(plan.work_type()));
  header.set_roundings(plan.roundings());
  return header;
}

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
