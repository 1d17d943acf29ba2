// SPDX-License-Identifier: Apache-2.0
#include "server/oip/spec_field.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "core/request/rules.h"
#include "google/protobuf/util/json_util.h"
#include "server/oip/data_types.h"

namespace attnbias {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;
using InputTensor = inference::ModelInferRequest::InferInputTensor;

// Elements that a path may make of a list of messages. No encoding has more.
constexpr int kMaxIndex = 63;
// As messages an empty object takes fifty times its text. Thousands of numbers
// fit.
constexpr size_t kMaxJsonBytes = size_t{64} << 10;

void AppendView(std::string* text, std::string_view view) {
  text->append(view);
}

absl::Status NoSuchField(const Model& model, const std::string& path) {
  return Invalid(Shortened(path), ": ", model.name(),
                 " has no such field, want one that ModelConfig lists, of ",
                 absl::StrJoin(model.Fields(), ", ", AppendView));
}

bool IsMessage(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
}

absl::Status CheckUnset(const std::string& path, const Message& message,
                        const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  const bool set = field.is_repeated()
                       ? reflection.FieldSize(message, &field) > 0
                       : reflection.HasField(message, &field);
  if (!set) return absl::OkStatus();
  return Invalid(path, ": set twice, want it once");
}

// The message to go on in, or nothing.
Message* Enter(Message* message, const FieldDescriptor& field,
               const std::string* index) {
  const Reflection& reflection = *message->GetReflection();
  if (!IsMessage(field)) return nullptr;
  if (index == nullptr) return reflection.MutableMessage(message, &field);
  int wanted = 0;
  if (!absl::SimpleAtoi(*index, &wanted) || wanted < 0 || wanted > kMaxIndex) {
    return nullptr;
  }
  while (reflection.FieldSize(*message, &field) <= wanted) {
    reflection.AddMessage(message, &field);
  }
  return reflection.MutableRepeatedMessage(message, &field, wanted);
}

// What a field takes, in words.
std::string Wanted(const FieldDescriptor& field) {
  std::string one(field.type_name());
  if (field.type() == FieldDescriptor::TYPE_ENUM) {
    one = ShortNames(*field.enum_type());
  } else if (IsMessage(field)) {
    one = absl::StrCat("a message ", field.message_type()->name(), " as JSON");
  }
  return field.is_repeated() ? absl::StrCat("a JSON list, each ", one) : one;
}

}  // namespace

absl::StatusOr<SpecField> SpecField::Find(const Model& model,
                                          const std::string& path,
                                          v1::TensorSpec* spec) {
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  if (!absl::c_linear_search(model.Fields(), names.front())) {
    return NoSuchField(model, path);
  }
  Message* message = spec;
  for (size_t i = 0;; ++i) {
    const FieldDescriptor* const field =
        message->GetDescriptor()->FindFieldByName(names[i]);
    if (field == nullptr) return NoSuchField(model, path);
    const OneofDescriptor* const oneof = field->real_containing_oneof();
    if (oneof != nullptr) {
      const FieldDescriptor* const other =
          message->GetReflection()->GetOneofFieldDescriptor(*message, oneof);
      if (other != nullptr && other != field) {
        return Invalid(path, ": set beside ", other->name(),
                       ", want one of them");
      }
    }
    if (i + 1 == names.size()) {
      return SpecField(path, message, field);
    }
    const std::string* index = nullptr;
    if (field->is_repeated()) index = &names[++i];
    message = Enter(message, *field, index);
    if (message == nullptr || i + 1 == names.size()) {
      return NoSuchField(model, path);
    }
  }
}

absl::Status SpecField::Set(const inference::InferParameter& value) const {
  using Value = inference::InferParameter;
  ATTNBIAS_RETURN_IF_ERROR(CheckUnset(path_, *message_, *field_));
  switch (value.parameter_choice_case()) {
    case Value::kBoolParam:
      return SetJson(value.bool_param() ? "true" : "false");
    case Value::kInt64Param:
      return SetJson(absl::StrCat(value.int64_param()));
    case Value::kUint64Param:
      return SetJson(absl::StrCat(value.uint64_param()));
    case Value::kDoubleParam: {
      const double number = value.double_param();
      if (std::isnan(number)) return SetJson("\"NaN\"");
      if (std::isinf(number)) {
        return SetJson(number > 0 ? "\"Infinity\"" : "\"-Infinity\"");
      }
      return SetJson(absl::StrFormat("%.17g", number));
    }
    case Value::kStringParam:
      return SetText(value.string_param());
    case Value::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  return Invalid(path_, ": got no value, want ", Wanted(*field_));
}

absl::Status SpecField::SetText(const std::string& text) const {
  const Reflection& reflection = *message_->GetReflection();
  if (field_->is_repeated()) return SetJson(text);
  if (field_->type() == FieldDescriptor::TYPE_STRING) {
    reflection.SetString(message_, field_, text);
    return absl::OkStatus();
  }
  if (field_->type() != FieldDescriptor::TYPE_ENUM) return SetJson(text);
  const EnumDescriptor& type = *field_->enum_type();
  for (int i = 0; i < type.value_count(); ++i) {
    const EnumValueDescriptor& value = *type.value(i);
    if (text != value.name() && text != ShortName(type, value.number())) {
      continue;
    }
    reflection.SetEnum(message_, field_, &value);
    return absl::OkStatus();
  }
  return Invalid(path_, ": got '", Shortened(text), "', want ",
                 Wanted(*field_));
}

absl::Status SpecField::SetJson(const std::string& text) const {
  if (text.size() > kMaxJsonBytes) {
    return Invalid(path_, ": got JSON of ", text.size(),
                   " bytes, want at most ", kMaxJsonBytes);
  }
  const std::unique_ptr<Message> read(message_->New());
  std::vector<const FieldDescriptor*> set;
  const bool parsed =
      google::protobuf::util::JsonStringToMessage(
          absl::StrCat("{\"", field_->name(), "\": ", text, "}"), read.get())
          .ok();
  read->GetReflection()->ListFields(*read, &set);
  // Text that goes on after the value would set others.
  const bool alone = set.empty() || (set.size() == 1 && set[0] == field_);
  if (!parsed || !alone) {
    return Invalid(path_, ": got ", Shortened(text), ", want ",
                   Wanted(*field_));
  }
  message_->MergeFrom(*read);
  return absl::OkStatus();
}

absl::Status SpecField::Set(const InputTensor& tensor, std::string data) const {
  if (IsMessage(*field_)) {
    if (field_->message_type() == v1::TableRef::descriptor() &&
        !field_->is_repeated()) {
      return SetTable(tensor, std::move(data));
    }
    if (field_->message_type() == v1::PositionList::descriptor()) {
      return SetPositions(tensor, data);
    }
  }
  return Invalid(path_, ": got an input, want a parameter");
}

absl::Status SpecField::SetTable(const InputTensor& tensor,
                                 std::string data) const {
  const auto type = absl::c_find(kOipDataTypes, tensor.datatype());
  if (type == kOipDataTypes.end() || *type == OipNameOf(DataType::kI32)) {
    return Invalid(path_, ".datatype: got '", Shortened(tensor.datatype()),
                   "', want FP64, FP32, FP16 or BF16");
  }
  auto& ref = static_cast<v1::TableRef&>(
      *message_->GetReflection()->MutableMessage(message_, field_));
  if (ref.source_case() != v1::TableRef::SOURCE_NOT_SET) {
    return Invalid(path_, ": set twice, want it once");
  }
  v1::InlineTable& table = *ref.mutable_inline_table();
  table.set_data_type(
      static_cast<v1::DataType>(type - kOipDataTypes.begin() + 1));
  *table.mutable_shape() = tensor.shape();
  *table.mutable_data() = std::move(data);
  return absl::OkStatus();
}

absl::Status SpecField::SetPositions(const InputTensor& tensor,
                                     const std::string& data) const {
  ATTNBIAS_RETURN_IF_ERROR(CheckUnset(path_, *message_, *field_));
  const bool are_doubles = tensor.datatype() == OipNameOf(DataType::kF64);
  if (!are_doubles && tensor.datatype() != kOipPositions) {
    return Invalid(path_, ".datatype: got '", Shortened(tensor.datatype()),
                   "', want ", std::string(kOipPositions), " or FP64");
  }
  const int rank = tensor.shape_size();
  if (rank != 1 && !(rank == 2 && field_->is_repeated())) {
    return Invalid(path_, ".shape: got ", rank, " axes, want 1",
                   field_->is_repeated() ? " or 2" : "");
  }
  const int64_t lists = rank == 2 ? tensor.shape(0) : 1;
  if (lists > kMaxIndex + 1) {
    return Invalid(path_, ".shape: got ", lists, " lists, want at most ",
                   kMaxIndex + 1);
  }
  const auto length = static_cast<int>(tensor.shape(rank - 1));
  const char* from = data.data();
  const auto copy_list = [length, &from](auto& numbers) {
    static_assert(sizeof(*numbers.data()) == sizeof(int64_t));
    numbers.Resize(length, 0);
    std::memcpy(numbers.mutable_data(), from, length * sizeof(int64_t));
    from += length * sizeof(int64_t);
  };
  const Reflection& reflection = *message_->GetReflection();
  for (int64_t i = 0; i < lists; ++i) {
    auto& list = static_cast<v1::PositionList&>(
        field_->is_repeated() ? *reflection.AddMessage(message_, field_)
                              : *reflection.MutableMessage(message_, field_));
    if (are_doubles) {
      copy_list(*list.mutable_doubles());
    } else {
      copy_list(*list.mutable_positions());
    }
  }
  return absl::OkStatus();
}

}  // namespace attnbias
