// SPDX-License-Identifier: Apache-2.0
#include "server/codec/known.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"
#include "server/version.h"

namespace attnbias {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Where a message or value stands; written out only when something is wrong.
struct Place {
  const Place* parent;
  const FieldDescriptor* field;
  int index;
};

std::string PathOf(const Place* place) {
  if (place == nullptr) return "";
  std::string path = PathOf(place->parent);
  if (!path.empty()) path += '.';
  path += place->field->name();
  if (place->field->is_repeated())
    absl::StrAppend(&path, "[", place->index, "]");
  return path;
}

absl::Status Unknown(const Place* place, std::string_view what, int number) {
  const std::string path = PathOf(place);
  return absl::UnimplementedError(absl::StrCat(
      path.empty() ? "request" : path, ": ", std::string(what), " ", number,
      " is not known to this server, version ", std::string(Version())));
}

absl::Status CheckMessage(const Message& message, const Place* place);

absl::Status CheckValue(const Message& message, const Place& place) {
  const FieldDescriptor& field = *place.field;
  const Reflection& reflection = *message.GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return CheckMessage(
        field.is_repeated()
            ? reflection.GetRepeatedMessage(message, &field, place.index)
            : reflection.GetMessage(message, &field),
        &place);
  }
  const int value =
      field.is_repeated()
          ? reflection.GetRepeatedEnumValue(message, &field, place.index)
          : reflection.GetEnumValue(message, &field);
  if (field.enum_type()->FindValueByNumber(value) != nullptr) {
    return absl::OkStatus();
  }
  return Unknown(&place, "enum value", value);
}

absl::Status CheckMessage(const Message& message, const Place* place) {
  const Reflection& reflection = *message.GetReflection();
  const auto& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    return Unknown(place, "field number", unknown.field(0).number());
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
      ATTNBIAS_RETURN_IF_ERROR(CheckValue(message, {place, field, i}));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckKnown(const Message& message) {
  return CheckMessage(message, nullptr);
}

}  // namespace attnbias
