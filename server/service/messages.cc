// SPDX-License-Identifier: Apache-2.0
#include "server/service/messages.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace attnbias {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

// Memory of an object, including a pointer to it and the allocator's overhead.
constexpr int64_t kObjectBytes = 256;
// Lists grow by doubling.
constexpr int64_t kNumberBytes = 2 * 8;
// Maximum depth that protobuf accepts.
constexpr size_t kMostDepth = 100;

WireFormatLite::WireType WireTypeOf(const FieldDescriptor& field) {
  return WireFormatLite::WireTypeForFieldType(static_cast<WireFormatLite::FieldType>(field.type()));
}

// Scans the bytes of a message once.
class Walker {
 public:
  explicit Walker(CodedInputStream* in) : in_(*in) {}

  // Scans the fields up to the stream's limit. Returns false if they do not end there.
  bool Walk(const Descriptor& type) {
    if (path_.size() > kMostDepth) return false;
    size_ += kObjectBytes;
    // Elements so far.
    std::map<const FieldDescriptor*, int> lists;
    while (const uint32_t tag = in_.ReadTag()) {
      const FieldDescriptor* field = FieldOf(type, tag);
      if (field == nullptr) {
        NoteUnknown("field number ", WireFormatLite::GetTagFieldNumber(tag));
      }
      const bool is_list = field != nullptr && field->is_repeated();
      path_.push_back({field, is_list ? lists[field] : 0});
      if (!WalkValue(field, tag)) return false;
      if (is_list) lists[field] = path_.back().index + 1;
      path_.pop_back();
    }
    return in_.BytesUntilLimit() == 0;
  }

  int64_t size() const { return size_; }
  const absl::Status& known() const { return known_; }

 private:
  struct Step {
    const FieldDescriptor* field;
    // Set for elements of a list.
    int index;
  };

  // Returns the field that `tag` introduces; null if `type` has no such field or encodes it
  // differently. Protobuf's parser then keeps an unknown field.
  static const FieldDescriptor* FieldOf(const Descriptor& type, uint32_t tag) {
    const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    if (field == nullptr) return nullptr;
    const auto wire_type = WireFormatLite::GetTagWireType(tag);
    const bool is_packed =
        wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED && field->is_packable();
    return is_packed || wire_type == WireTypeOf(*field) ? field : nullptr;
  }

  bool WalkValue(const FieldDescriptor* field, uint32_t tag) {
    if (WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      return WalkBytes(field);
    }
    size_ += kNumberBytes;
    if (field != nullptr && field->enum_type() != nullptr) return WalkEnum(*field);
    return WireFormatLite::SkipField(&in_, tag);
  }

  bool WalkEnum(const FieldDescriptor& field) {
    uint64_t value = 0;
    if (!in_.ReadVarint64(&value)) return false;
    const auto number = static_cast<int>(value);
    if (field.enum_type()->FindValueByNumber(number) == nullptr) {
      NoteUnknown("enum value ", number);
    }
    return true;
  }

  // Scans a length-delimited field: a message, packed numbers or a string.
  bool WalkBytes(const FieldDescriptor* field) {
    uint32_t length = 0;
    if (!in_.ReadVarint32(&length)) return false;
    // A length beyond the end allocates no memory.
    if (static_cast<int64_t>(length) > in_.BytesUntilLimit()) return false;
    const bool is_message = field != nullptr && field->message_type() != nullptr;
    const bool is_packed = field != nullptr && field->is_packable();
    if (!is_message) {
      size_ += is_packed ? length / ShortestOf(*field) * kNumberBytes : kObjectBytes + length;
      if (!is_packed || field->enum_type() == nullptr) return in_.Skip(static_cast<int>(length));
    }
    const auto outer = in_.PushLimit(static_cast<int>(length));
    const bool whole = is_message ? Walk(*field->message_type()) : WalkEnums(*field);
    in_.PopLimit(outer);
    return whole;
  }

  // Scans packed enums up to the stream's limit.
  bool WalkEnums(const FieldDescriptor& field) {
    for (; in_.BytesUntilLimit() > 0; ++path_.back().index) {
      if (!WalkEnum(field)) return false;
    }
    --path_.back().index;  // shift of the last byte
    return true;
  }

  // Returns the minimum number of bytes of a packed number.
  static int64_t ShortestOf(const FieldDescriptor& field) {
    switch (WireTypeOf(field)) {
      case WireFormatLite::WIRETYPE_FIXED64:
        return 8;
      case WireFormatLite::WIRETYPE_FIXED32:
        return 4;
      default:
        return 1;
    }
  }

  // Sets known() to an error at path_, unless it is already set.
  void NoteUnknown(std::string_view kind, int number) {
    if (!known_.ok()) return;
    const auto write = [](std::string* text, const Step& step) {
      absl::StrAppend(text, step.field->name());
      if (!step.field->is_repeated()) return;
      absl::StrAppend(text, "[", step.index, "]");
    };
    known_ = absl::UnimplementedError(absl::StrCat(
        path_.empty() ? "request" : absl::StrJoin(path_, ".", write), ": ", std::string(kind),
        number, " is not known to this server, version ", ATTNBIAS_VERSION));
  }

  CodedInputStream& in_;
  // Path to the field being scanned.
  std::vector<Step> path_;
  int64_t size_ = 0;
  absl::Status known_;
};

Measured WalkOver(CodedInputStream* in, size_t size, const Descriptor& type) {
  in->PushLimit(static_cast<int>(size));
  Walker walker(in);
  const bool is_whole = walker.Walk(type);
  return {.decoded_bytes = walker.size(), .is_whole = is_whole, .known = walker.known()};
}

}  // namespace

Measured Measure(const grpc::ByteBuffer& bytes, const Descriptor& type) {
  grpc::ByteBuffer copy(bytes);  // maximum number of references
  grpc::ProtoBufferReader reader(&copy);
  CodedInputStream in(&reader);
  return WalkOver(&in, bytes.Length(), type);
}

absl::Status CheckKnown(const Message& message) {
  const std::string bytes = message.SerializeAsString();
  CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  return WalkOver(&in, bytes.size(), *message.GetDescriptor()).known;
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
  // Two varints.
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

grpc::ByteBuffer AppendData(std::string_view fields, int data_field, const Chunk& chunk) {
  std::vector<grpc::Slice> slices;
  slices.reserve(1 + chunk.pieces.size());
  slices.emplace_back();
  const int64_t size = AppendBytes(chunk, &slices);
  slices.front() = grpc::Slice(std::string(fields) + TagAndLength(data_field, size));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace attnbias
