// SPDX-License-Identifier: Apache-2.0
#include "server/codec/field_codec.h"

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/reflection.h"
#include "server/codec/table_codec.h"

namespace attnbias {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

bool Is32Bits(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_INT32;
}

// Reads a field that is set into a member.
struct Decoder {
  const Message& message;
  const FieldDescriptor& field;
  const std::string& path;
  const TableSet& tables;

  const Reflection& reflection() const { return *message.GetReflection(); }
  template <typename T>
  T Scalar() const {
    if constexpr (std::is_same_v<T, bool>) {
      return reflection().GetBool(message, &field);
    } else if constexpr (std::is_same_v<T, double>) {
      return reflection().GetDouble(message, &field);
    } else {
      return Is32Bits(field) ? reflection().GetInt32(message, &field)
                             : reflection().GetInt64(message, &field);
    }
  }

  template <typename T>
  absl::Status operator()(T* member) const {
    *member = Scalar<typename ValueIn<T>::Type>();
    return absl::OkStatus();
  }
  absl::Status operator()(std::optional<Table>* member) const {
    ATTNBIAS_ASSIGN_OR_RETURN(
        *member, DecodeTable(static_cast<const v1::TableRef&>(
                                 reflection().GetMessage(message, &field)),
                             path, tables));
    return absl::OkStatus();
  }
  absl::Status operator()(std::vector<double>* member) const {
    const auto numbers =
        reflection().GetRepeatedFieldRef<double>(message, &field);
    member->assign(numbers.begin(), numbers.end());
    return absl::OkStatus();
  }
  absl::Status operator()(std::vector<int64_t>* member) const {
    const int size = reflection().FieldSize(message, &field);
    member->reserve(size);
    for (int i = 0; i < size; ++i) {
      member->push_back(
          Is32Bits(field) ? reflection().GetRepeatedInt32(message, &field, i)
                          : reflection().GetRepeatedInt64(message, &field, i));
    }
    return absl::OkStatus();
  }
  absl::Status operator()(const EnumMember& member) const {
    // 0 is "not said".
    const int value = reflection().GetEnumValue(message, &field);
    if (value != 0) member.set(value);
    return absl::OkStatus();
  }
  absl::Status operator()(const MessageMember& member) const {
    const int size =
        field.is_repeated() ? reflection().FieldSize(message, &field) : 1;
    // One takes two bytes of a request, and a thousand here.
    if (field.is_repeated() && size > member.most) {
      return Invalid(path, ": got ", size, ", want at most ", member.most);
    }
    if (member.resize != nullptr) member.resize(size);
    const std::vector<FieldList> elements = member.elements();
    if (!field.is_repeated()) {
      return DecodeFields(reflection().GetMessage(message, &field), path,
                          tables, elements.front());
    }
    for (int i = 0; i < size; ++i) {
      ATTNBIAS_RETURN_IF_ERROR(
          DecodeFields(reflection().GetRepeatedMessage(message, &field, i),
                       absl::StrCat(path, "[", i, "]"), tables, elements[i]));
    }
    return absl::OkStatus();
  }
};

// Writes a member to a field.
struct Encoder {
  Message* message;
  const FieldDescriptor& field;
  const std::optional<int64_t>& default_value;

  const Reflection& reflection() const { return *message->GetReflection(); }
  void Set(bool value) const { reflection().SetBool(message, &field, value); }
  void Set(double value) const {
    reflection().SetDouble(message, &field, value);
  }
  void Set(int64_t value) const {
    if (Is32Bits(field)) {
      reflection().SetInt32(message, &field, static_cast<int32_t>(value));
    } else {
      reflection().SetInt64(message, &field, value);
    }
  }

  template <typename T>
  void operator()(const T* member) const {
    Set(static_cast<typename ValueIn<T>::Type>(*member));
  }
  template <typename T>
  void operator()(const std::optional<T>* member) const {
    if (member->has_value()) {
      Set(**member);
    } else if (default_value.has_value()) {
      Set(*default_value);
    }
  }
  void operator()(const std::optional<Table>* member) const {
    if (!member->has_value()) return;
    EncodeTable(**member, static_cast<v1::TableRef*>(
                              reflection().MutableMessage(message, &field)));
  }
  void operator()(const std::vector<double>* member) const {
    const auto out =
        reflection().GetMutableRepeatedFieldRef<double>(message, &field);
    for (const double number : *member) out.Add(number);
  }
  void operator()(const std::vector<int64_t>* member) const {
    for (const int64_t number : *member) {
      if (Is32Bits(field)) {
        reflection().AddInt32(message, &field, static_cast<int32_t>(number));
      } else {
        reflection().AddInt64(message, &field, number);
      }
    }
  }
  void operator()(const EnumMember& member) const {
    const int value = member.get();
    if (value != 0) reflection().SetEnumValue(message, &field, value);
  }
  void operator()(const MessageMember& member) const {
    for (const FieldList& element : member.elements()) {
      EncodeFields(element, field.is_repeated()
                                ? reflection().AddMessage(message, &field)
                                : reflection().MutableMessage(message, &field));
    }
  }
};

bool IsSet(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  return field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                             : reflection.HasField(message, &field);
}

// "sinusoidal, t5, alibi"
std::string NamesIn(const google::protobuf::OneofDescriptor& oneof) {
  std::string names;
  for (int i = 0; i < oneof.field_count(); ++i) {
    absl::StrAppend(&names, i == 0 ? "" : ", ", oneof.field(i)->name());
  }
  return names;
}

}  // namespace

absl::Status DecodeFields(const Message& message, const std::string& path,
                          const TableSet& tables, const FieldList& fields) {
  for (const Field& field : fields) {
    const FieldDescriptor& wire =
        *message.GetDescriptor()->FindFieldByNumber(field.number());
    if (!IsSet(message, wire)) continue;
    ATTNBIAS_RETURN_IF_ERROR(std::visit(
        Decoder{message, wire, field.PathIn(path), tables}, field.member()));
  }
  return absl::OkStatus();
}

void EncodeFields(const FieldList& fields, Message* message) {
  for (const Field& field : fields) {
    if (field.is_idle()) continue;
    std::visit(
        Encoder{message,
                *message->GetDescriptor()->FindFieldByNumber(field.number()),
                field.default_value()},
        field.member());
  }
}

absl::StatusOr<AnySpec> DecodeOneof(
    const Message& message, const std::string& oneof, const TableSet& tables,
    std::optional<AnySpec> (*default_spec)(std::string_view name)) {
  const auto& wire = *message.GetDescriptor()->FindOneofByName(oneof);
  const Reflection& reflection = *message.GetReflection();
  const auto* field = reflection.GetOneofFieldDescriptor(message, &wire);
  if (field == nullptr) {
    return Invalid(oneof, ": not set, want one of ", NamesIn(wire));
  }
  AnySpec spec = *default_spec(field->name());
  ATTNBIAS_RETURN_IF_ERROR(DecodeFields(reflection.GetMessage(message, field),
                                        std::string(field->name()), tables,
                                        spec.Fields()));
  return spec;
}

Message* EncodeOneof(AnySpec spec, Message* message) {
  const auto* field =
      message->GetDescriptor()->FindFieldByName(std::string(spec.name()));
  Message* encoded = message->GetReflection()->MutableMessage(message, field);
  EncodeFields(spec.Fields(), encoded);
  return encoded;
}

}  // namespace attnbias
