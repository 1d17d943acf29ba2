// SPDX-License-Identifier: Apache-2.0
#include "server/service/messages.h"

#include <cstdint>
#include <memory>
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

// Memory that an object takes, including a pointer to it and the allocator's overhead.
constexpr int64_t kObjectBytes = 256;
// Memory that a number takes in a list, which grows by doubling.
constexpr int64_t kNumberBytes = 2 * 8;
// Memory that a field takes if it is not length-delimited. An unknown field takes 16 bytes, and
// three times that while the vector of unknown fields grows.
constexpr int64_t kFieldBytes = 3 * 16;

// Returns the minimum size, in bytes, of a packed number.
int64_t ShortestOf(const FieldDescriptor& field) {
  switch (
      WireFormatLite::WireTypeForFieldType(static_cast<WireFormatLite::FieldType>(field.type()))) {
    case WireFormatLite::WIRETYPE_FIXED64:
      return 8;
    case WireFormatLite::WIRETYPE_FIXED32:
      return 4;
    default:
      return 1;
  }
}

// Adds to `size` the decoded size of the fields up to the limit of `in`. Returns false if the
// fields do not end at the limit.
bool Walk(const Descriptor& type, CodedInputStream& in, int64_t& size) {
  size += kObjectBytes;
  while (const uint32_t tag = in.ReadTag()) {
    const auto wire_type = WireFormatLite::GetTagWireType(tag);
    // The contract has no groups, and protobuf would keep an unknown one with all its contents.
    if (wire_type == WireFormatLite::WIRETYPE_START_GROUP) return false;
    if (wire_type != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      size += kFieldBytes;
      if (!WireFormatLite::SkipField(&in, tag)) return false;
      continue;
    }
    uint32_t length = 0;
    if (!in.ReadVarint32(&length)) return false;
    // A message with a length past its end is not parsed, so the field takes no memory.
    if (static_cast<int64_t>(length) > in.BytesUntilLimit()) return false;
    const FieldDescriptor* const field =
        type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    if (field == nullptr || field->message_type() == nullptr) {
      const bool is_packed = field != nullptr && field->is_packable();
      size += is_packed ? length / ShortestOf(*field) * kNumberBytes : kObjectBytes + length;
      if (!in.Skip(static_cast<int>(length))) return false;
      continue;
    }
    const auto [outer, depth_left] =
        in.IncrementRecursionDepthAndPushLimit(static_cast<int>(length));
    if (depth_left < 0 || !Walk(*field->message_type(), in, size) ||
        !in.DecrementRecursionDepthAndPopLimit(outer)) {
      return false;
    }
  }
  return in.BytesUntilLimit() == 0;
}

// Returns "PATH: WHAT" for a field or enum value, at any depth, that its descriptor does not
// define, or ": WHAT" if it is a field of `message` itself. Returns "" if there is none.
std::string FindUnknown(const Message& message);

// Does the same for one field that is set or, if the field is a list, for its element `index`.
std::string FindUnknownIn(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const bool is_list = field.is_repeated();
  std::string found;
  if (field.enum_type() != nullptr) {
    const int value = is_list ? reflection.GetRepeatedEnumValue(message, &field, index)
                              : reflection.GetEnumValue(message, &field);
    const bool is_known = field.enum_type()->FindValueByNumber(value) != nullptr;
    if (!is_known) found = absl::StrCat(": enum value ", value);
  } else {
    found = FindUnknown(is_list ? reflection.GetRepeatedMessage(message, &field, index)
                                : reflection.GetMessage(message, &field));
  }
  if (found.empty()) return found;
  return absl::StrCat(field.name(), is_list ? absl::StrCat("[", index, "]") : "",
                      found.front() == ':' ? "" : ".", found);
}

std::string FindUnknown(const Message& message) {
  const Descriptor& type = *message.GetDescriptor();
  const Reflection& reflection = *message.GetReflection();
  const auto& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) return absl::StrCat(": field number ", unknown.field(0).number());
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.message_type() == nullptr && field.enum_type() == nullptr) continue;
    const int count = field.is_repeated() ? reflection.FieldSize(message, &field)
                                          : reflection.HasField(message, &field);
    for (int index = 0; index < count; ++index) {
      std::string found = FindUnknownIn(message, field, index);
      if (!found.empty()) return found;
    }
  }
  return "";
}

}  // namespace

Measured Measure(const grpc::ByteBuffer& bytes, const Descriptor& type) {
  grpc::ByteBuffer copy(bytes);  // copies references to the bytes
  grpc::ProtoBufferReader reader(&copy);
  CodedInputStream in(&reader);
  in.PushLimit(static_cast<int>(bytes.Length()));
  Measured measured;
  measured.is_whole = Walk(type, in, measured.decoded_bytes);
  return measured;
}

absl::Status CheckKnown(const Message& message) {
  const std::string found = FindUnknown(message);
  if (found.empty()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(found.front() == ':' ? "request" : "", found,
                                               " is not known to this server, version ",
                                               ATTNBIAS_VERSION));
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
    // The smallest key minus the largest query.
    header->set_first_relative_position(plan.window().keys.hull().begin -
                                        (plan.window().queries.hull().end - 1));
  }
}

// Returns the field that pads a message of `size` other bytes to a multiple of kDataAlignment.
std::string Padding(size_t size) {
  constexpr size_t kTagAndLengthBytes = 2;
  const size_t missing = -(size + kTagAndLengthBytes) % kDataAlignment;
  return TagAndLength(v1::StreamTensorResponse::kPaddingFieldNumber, missing) +
         std::string(missing, 0);
}

void ReleaseOwner(void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); }

}  // namespace

uint32_t ChecksumOf(const grpc::ByteBuffer& request) {
  std::vector<grpc::Slice> slices;
  (void)request.Dump(&slices);
  uint32_t crc32c = 0;
  for (const grpc::Slice& slice : slices) {
    crc32c = ExtendCrc32c(crc32c, slice.begin(), slice.size());
  }
  return crc32c;
}

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
  // Room for two varints.
  uint8_t bytes[20];
  uint8_t* at = CodedOutputStream::WriteTagToArray(
      WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED), bytes);
  at = CodedOutputStream::WriteVarint64ToArray(length, at);
  return {bytes, at};
}

int64_t AppendBytes(const Chunk& chunk, std::vector<grpc::Slice>* slices) {
  // All pieces share one reference count.
  const grpc::Slice memory(const_cast<std::byte*>(chunk.memory.data()), chunk.memory.size(),
                           &ReleaseOwner, new std::shared_ptr<const void>(chunk.owner));
  int64_t size = 0;
  for (absl::Span<const std::byte> piece : chunk.pieces) {
    const size_t offset = piece.data() - chunk.memory.data();
    slices->push_back(memory.sub(offset, offset + piece.size()));
    size += static_cast<int64_t>(piece.size());
  }
  return size;
}

grpc::ByteBuffer AppendData(std::string fields, int data_field, const Chunk& chunk, bool aligned) {
  std::vector<grpc::Slice> slices;
  slices.reserve(1 + chunk.pieces.size());
  slices.emplace_back();
  const int64_t size = AppendBytes(chunk, &slices);
  const std::string last = TagAndLength(data_field, size);
  if (aligned) fields += Padding(fields.size() + last.size());
  slices.front() = grpc::Slice(fields += last);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace attnbias
