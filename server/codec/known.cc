// SPDX-License-Identifier: Apache-2.0
#include "server/codec/known.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"

namespace attnbias {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Leads to a message or value; written out only when something is wrong.
struct FieldPath {
  const FieldPath* parent;
  const FieldDescriptor* field;
  int index;
};

std::string ToString(const FieldPath* path) {
  if (path == nullptr) return "";
  std::string text = ToString(path->parent);
  if (!text.empty()) text += '.';
  text += path->field->name();
  if (path->field->is_repeated()) absl::StrAppend(&text, "[", path->index, "]");
  return text;
}

absl::Status Unknown(const FieldPath* path, std::string_view what, int number) {
  const std::string text = ToString(path);
  return absl::UnimplementedError(absl::StrCat(
      text.empty() ? "request" : text, ": ", std::string(what), " ", number,
      " is not known to this server, version ", ATTNBIAS_VERSION));
}

absl::Status CheckMessage(const Message& message, const FieldPath* path);

absl::Status CheckValue(const Message& message, const FieldPath& path) {
  const FieldDescriptor& field = *path.field;
  const Reflection& reflection = *message.GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return CheckMessage(
        field.is_repeated()
            ? reflection.GetRepeatedMessage(message, &field, path.index)
            : reflection.GetMessage(message, &field),
        &path);
  }
  const int value =
      field.is_repeated()
          ? reflection.GetRepeatedEnumValue(message, &field, path.index)
          : reflection.GetEnumValue(message, &field);
  if (field.enum_type()->FindValueByNumber(value) != nullptr) {
    return absl::OkStatus();
  }
  return Unknown(&path, "enum value", value);
}

absl::Status CheckMessage(const Message& message, const FieldPath* path) {
  const Reflection& reflection = *message.GetReflection();
  const auto& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    return Unknown(path, "field number", unknown.field(0).number());
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
      ATTNBIAS_RETURN_IF_ERROR(CheckValue(message, {path, field, i}));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckKnown(const Message& message) {
  return CheckMessage(message, nullptr);
}

}  // namespace attnbias
