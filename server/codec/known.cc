// SPDX-License-Identifier: Apache-2.0
#include "server/codec/known.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"

namespace attnbias {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

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

absl::Status CheckKnown(const Message& message) {
  const std::optional<Unknown> found = FindUnknown(message);
  if (!found.has_value()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      found->path.empty() ? "request" : found->path, ": ", found->what,
      " is not known to this server, version ", ATTNBIAS_VERSION));
}

}  // namespace attnbias
