// SPDX-License-Identifier: Apache-2.0
#include "client/cli/spec_fields.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "attnbias/v1/options.pb.h"
#include "client/cli/presets_text.h"
#include "client/cli/table_file.h"
#include "google/protobuf/text_format.h"

namespace attnbias {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr absl::string_view kLayoutSuffix = "_layout";
constexpr absl::string_view kDigestPrefix = "sha256:";
constexpr absl::string_view kNamePrefix = "name:";
// Value of a nested message that has no fields.
constexpr absl::string_view kEmpty = "{}";

// Returns the prefix of an enum's values: "ROTARY_LAYOUT_" for RotaryLayout.
std::string ValuePrefix(const EnumDescriptor& type) {
  std::string prefix;
  for (const char c : type.name()) {
    if (std::isupper(static_cast<unsigned char>(c)) && !prefix.empty()) {
      prefix += '_';
    }
    prefix += absl::ascii_toupper(static_cast<unsigned char>(c));
  }
  return prefix + "_";
}

// Returns true if `field` is a message, or a list of messages, whose fields are set one by one:
// "ladder.base", "layers.0.weight".
bool IsNested(const FieldDescriptor& field) {
  const Descriptor* type = field.message_type();
  return type != nullptr && type != v1::TableRef::descriptor() && type != v1::Range::descriptor() &&
         type != v1::PositionList::descriptor() && type != v1::DoubleList::descriptor();
}

// Returns the field of the oneof `encoding` that is set in `spec`; null if none is.
const FieldDescriptor* EncodingIn(const v1::TensorSpec& spec) {
  return spec.GetReflection()->GetOneofFieldDescriptor(
      spec, spec.GetDescriptor()->FindOneofByName("encoding"));
}

absl::Status InvalidValue(absl::string_view text, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat("got \"", text, "\", want ", wanted));
}

// Prepends the name of the rejected argument to the message.
absl::Status Named(absl::string_view name, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(name, status.message()));
}

absl::Status WriteTable(absl::string_view text, v1::TableRef* table) {
  if (absl::ConsumePrefix(&text, kDigestPrefix)) {
    table->set_sha256(std::string(text));
    return absl::OkStatus();
  }
  if (absl::ConsumePrefix(&text, kNamePrefix)) {
    table->set_name(std::string(text));
    return absl::OkStatus();
  }
  if (!absl::ConsumePrefix(&text, "@")) return InvalidValue(text, kTableForms);
  auto read = ReadTableFile(std::string(text));
  if (!read.ok()) return read.status();
  *table->mutable_inline_table() = *std::move(read);
  return absl::OkStatus();
}

absl::Status WriteRange(absl::string_view text, v1::Range* range) {
  const std::vector<absl::string_view> ends = absl::StrSplit(text, ':');
  int64_t begin = 0;
  int64_t end = 0;
  if (ends.size() > 2 || !absl::SimpleAtoi(ends.back(), &end) ||
      (ends.size() == 2 && !absl::SimpleAtoi(ends.front(), &begin))) {
    return InvalidValue(text, "a half-open range A:B, or N for 0:N");
  }
  range->set_begin(begin);
  range->set_end(end);
  return absl::OkStatus();
}

// Sets a field to the value that `parse` returns or, if the field is a list, appends the value.
template <auto Set, auto Add, typename T>
absl::Status WriteNumber(bool (*parse)(absl::string_view, T*), absl::string_view wanted,
                         absl::string_view text, const FieldDescriptor& field, Message* message) {
  T value = {};
  if (!parse(text, &value)) return InvalidValue(text, wanted);
  const Reflection* reflection = message->GetReflection();
  (reflection->*(field.is_repeated() ? Add : Set))(message, &field, value);
  return absl::OkStatus();
}

// Ignores case, and accepts values with or without the type's prefix: "bf16", "DATA_TYPE_BF16".
absl::Status WriteEnum(absl::string_view text, const FieldDescriptor& field, Message* message) {
  const EnumDescriptor& type = *field.enum_type();
  const std::string prefix = ValuePrefix(type);
  const std::string name = absl::AsciiStrToUpper(text);
  const auto* value = type.FindValueByName(absl::StrCat(prefix, absl::StripPrefix(name, prefix)));
  if (value == nullptr || value->number() == 0) {
    return InvalidValue(text, absl::StrCat("one of ", absl::StrJoin(ShortNames(type), ", ")));
  }
  const Reflection* reflection = message->GetReflection();
  if (field.is_repeated()) {
    reflection->AddEnumValue(message, &field, value->number());
  } else {
    reflection->SetEnumValue(message, &field, value->number());
  }
  return absl::OkStatus();
}

absl::Status WriteScalar(absl::string_view text, const FieldDescriptor& field, Message* message) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return WriteNumber<&Reflection::SetInt32, &Reflection::AddInt32>(
          &absl::SimpleAtoi<int32_t>, "a 32-bit integer", text, field, message);
    case FieldDescriptor::CPPTYPE_INT64:
      return WriteNumber<&Reflection::SetInt64, &Reflection::AddInt64>(
          &absl::SimpleAtoi<int64_t>, "a 64-bit integer", text, field, message);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return WriteNumber<&Reflection::SetDouble, &Reflection::AddDouble>(
          &absl::SimpleAtod, "a number", text, field, message);
    case FieldDescriptor::CPPTYPE_BOOL:
      return WriteNumber<&Reflection::SetBool, &Reflection::AddBool>(
          &absl::SimpleAtob, "true or false", text, field, message);
    case FieldDescriptor::CPPTYPE_ENUM:
      return WriteEnum(text, field, message);
    default:
      return InvalidValue(text, "a field that the command line can set");
  }
}

// Writes the value of one field. Errors do not name the field.
absl::Status WriteField(absl::string_view text, const FieldDescriptor& field, Message* message) {
  const Descriptor* type = field.message_type();
  if (type == nullptr && !field.is_repeated()) {
    return WriteScalar(text, field, message);
  }
  if (type == nullptr) {
    for (const absl::string_view item : absl::StrSplit(text, ',')) {
      absl::Status status = WriteScalar(item, field, message);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  const Reflection* reflection = message->GetReflection();
  Message* value = field.is_repeated() ? reflection->AddMessage(message, &field)
                                       : reflection->MutableMessage(message, &field);
  if (type == v1::TableRef::descriptor()) {
    return WriteTable(text, static_cast<v1::TableRef*>(value));
  }
  if (type == v1::Range::descriptor()) {
    return WriteRange(text, static_cast<v1::Range*>(value));
  }
  // The first field of PositionList holds integers, the second doubles.
  const bool has_reals = type->field_count() > 1 && text.find_first_of(".eEnN") != text.npos;
  return WriteField(text, *type->field(has_reals ? 1 : 0), value);
}

std::string ValueOf(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection* reflection = message.GetReflection();
  if (field.enum_type() != nullptr) {
    return ShortName(*field.enum_type(), reflection->GetEnum(message, &field)->name());
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
    const double value = index < 0 ? reflection->GetDouble(message, &field)
                                   : reflection->GetRepeatedDouble(message, &field, index);
    std::array<char, 32> digits;
    char* const end = digits.data() + digits.size();
    return {digits.data(), std::to_chars(digits.data(), end, value).ptr};
  }
  std::string text;
  google::protobuf::TextFormat::PrintFieldValueToString(message, &field, index, &text);
  return text;
}

// Returns the value of the field whose path is `name`. If the field is a table that is not in the
// default layout, " table_layout=heads_buckets" follows.
std::string ValueOf(const Message& message, const FieldDescriptor& field, const std::string& name) {
  const Reflection* reflection = message.GetReflection();
  if (field.message_type() == v1::TableRef::descriptor()) {
    const auto& table = static_cast<const v1::TableRef&>(reflection->GetMessage(message, &field));
    return absl::StrCat(table.has_name() ? kNamePrefix : kDigestPrefix,
                        table.has_name() ? table.name() : table.sha256(),
                        table.layout() == v1::TABLE_LAYOUT_HEADS_BUCKETS
                            ? absl::StrCat(" ", name, kLayoutSuffix, "=heads_buckets")
                            : "");
  }
  if (field.message_type() == v1::DoubleList::descriptor()) {
    const Message& list = reflection->GetMessage(message, &field);
    return ValueOf(list, *list.GetDescriptor()->field(0), name);
  }
  if (!field.is_repeated()) return ValueOf(message, field, -1);
  std::vector<std::string> values;
  values.reserve(reflection->FieldSize(message, &field));
  for (int i = 0; i < reflection->FieldSize(message, &field); ++i) {
    values.push_back(ValueOf(message, field, i));
  }
  return absl::StrJoin(values, ",");
}

// Appends " name=value" for each field that is set in the message at `path`, which is empty for the
// encoding itself.
void AppendFields(const Message& message, const std::string& path, std::string* text) {
  const Reflection* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  if (fields.empty() && !path.empty()) absl::StrAppend(text, " ", path, "=", kEmpty);
  for (const FieldDescriptor* field : fields) {
    const std::string name = absl::StrCat(path, path.empty() ? "" : ".", field->name());
    if (!IsNested(*field)) {
      absl::StrAppend(text, " ", name, "=", ValueOf(message, *field, name));
    } else if (!field->is_repeated()) {
      AppendFields(reflection->GetMessage(message, field), name, text);
    } else {
      for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
        AppendFields(reflection->GetRepeatedMessage(message, field, i), absl::StrCat(name, ".", i),
                     text);
      }
    }
  }
}

// Returns "required", "optional" or the default. A bias's table is optional, since requests for
// bucket indices (BUCKETS) do not need it.
std::string NeedOf(const FieldDescriptor& field) {
  const v1::FieldRule& rule = field.options().GetExtension(v1::rule);
  if (!rule.given_by().empty()) {
    return absl::StrCat("required without ", absl::StrReplaceAll(rule.given_by(), {{"|", " | "}}));
  }
  if (!rule.default_().empty()) {
    return absl::StrCat("default ", field.enum_type() == nullptr
                                        ? rule.default_()
                                        : ShortName(*field.enum_type(), rule.default_()));
  }
  const bool is_value = field.message_type() == nullptr && !field.is_repeated();
  if (is_value && field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL && !field.has_presence()) {
    return "default false";
  }
  if (rule.of_bias() || !rule.only_with().empty() || field.real_containing_oneof() != nullptr) {
    return "optional";
  }
  return rule.required() || (is_value && !rule.has_default_()) ? "required" : "optional";
}

std::vector<Argument> ArgumentsOf(const Descriptor& type);

// Appends the arguments that set a field, or the fields of a nested message.
void AppendArguments(const std::string& name, const FieldDescriptor& field, const std::string& need,
                     std::vector<Argument>* arguments) {
  if (IsNested(field)) {
    for (Argument& inner : ArgumentsOf(*field.message_type())) {
      inner.name = absl::StrCat(name, field.is_repeated() ? ".N." : ".", inner.name);
      if (inner.need == "required" && need != "required") {
        absl::StrAppend(&inner.need, " with ", name);
      }
      arguments->push_back(std::move(inner));
    }
    return;
  }
  arguments->push_back({name, &field, need});
  if (field.message_type() == v1::TableRef::descriptor()) {
    arguments->push_back({absl::StrCat(name, kLayoutSuffix),
                          v1::TableRef::descriptor()->FindFieldByName("layout"), "optional"});
  }
}

std::vector<Argument> ArgumentsOf(const Descriptor& type) {
  std::vector<Argument> arguments;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    AppendArguments(std::string(field.name()), field, NeedOf(field), &arguments);
  }
  return arguments;
}

absl::Status NoSuchField(absl::string_view name, const std::vector<Argument>& arguments) {
  const auto add_name = [](std::string* text, const Argument& each) { *text += each.name; };
  return absl::InvalidArgumentError(absl::StrCat(name, ": no such field, want one of ",
                                                 absl::StrJoin(arguments, ", ", add_name)));
}

// The first field of a path such as "axes.0.scale" or "ladder.base".
struct Path {
  const FieldDescriptor* field;  // null if there is none
  absl::string_view index;       // empty unless the field is a list of messages
  absl::string_view rest;
};

Path PathOf(const Descriptor& type, absl::string_view text) {
  std::pair<absl::string_view, absl::string_view> words =
      absl::StrSplit(text, absl::MaxSplits('.', 1));
  const FieldDescriptor* field = type.FindFieldByName(std::string(words.first));
  if (field == nullptr || !field->is_repeated()) return {field, "", words.second};
  words = absl::StrSplit(words.second, absl::MaxSplits('.', 1));
  return {field, words.first, words.second};
}

// Returns the last field of a path.
const FieldDescriptor* FieldAt(const Descriptor& type, absl::string_view text) {
  const Path path = PathOf(type, text);
  return path.rest.empty() ? path.field : FieldAt(*path.field->message_type(), path.rest);
}

// Returns an error if another field of the same oneof is set in `message`.
absl::Status CheckRival(absl::string_view name, const FieldDescriptor& field,
                        const Message& message) {
  const auto* choice = field.real_containing_oneof();
  if (choice == nullptr) return absl::OkStatus();
  const auto* rival = message.GetReflection()->GetOneofFieldDescriptor(message, choice);
  if (rival == nullptr || rival == &field) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": given together with ", rival->name(), ", want one of the two"));
}

// Returns the message in the first field of a path. If the path's index equals the length of the
// list, appends a message; messages must therefore be given in order.
absl::StatusOr<Message*> MessageAt(const Path& path, Message* message) {
  const FieldDescriptor& field = *path.field;
  const Reflection* reflection = message->GetReflection();
  if (!field.is_repeated()) {
    absl::Status status = CheckRival(field.name(), field, *message);
    if (!status.ok()) return status;
    return reflection->MutableMessage(message, &field);
  }
  const int size = reflection->FieldSize(*message, &field);
  int number = 0;
  if (!absl::SimpleAtoi(path.index, &number) || number < 0 || number > size) {
    return absl::InvalidArgumentError(absl::StrCat(field.name(), ".", path.index, ": want ",
                                                   field.name(),
                                                   " numbered from 0 without gaps; the "
                                                   "next is ",
                                                   size));
  }
  return number == size ? reflection->AddMessage(message, &field)
                        : reflection->MutableRepeatedMessage(message, &field, number);
}

// Sets the field of `message` at the path `name`. INVALID_ARGUMENT begins with the path. A range is
// written A:B, or N for 0:N; a list is written 3,-1,3.
absl::Status SetField(absl::string_view name, absl::string_view value, Message* message) {
  const Descriptor& type = *message->GetDescriptor();
  const Path path = PathOf(type, name);
  if (path.field != nullptr && IsNested(*path.field) && (!path.rest.empty() || value == kEmpty)) {
    const absl::StatusOr<Message*> inner = MessageAt(path, message);
    if (!inner.ok() || path.rest.empty()) return inner.status();
    return Named(name.substr(0, name.size() - path.rest.size()),
                 SetField(path.rest, value, *inner));
  }
  const auto* field = type.FindFieldByName(std::string(name));
  absl::string_view table = name;
  const bool is_layout = field == nullptr && absl::ConsumeSuffix(&table, kLayoutSuffix);
  if (is_layout) field = type.FindFieldByName(std::string(table));
  if (field == nullptr || IsNested(*field) ||
      (is_layout && field->message_type() != v1::TableRef::descriptor())) {
    return NoSuchField(name, ArgumentsOf(type));
  }
  absl::Status status = CheckRival(name, *field, *message);
  if (!status.ok()) return status;
  if (is_layout) {
    message = message->GetReflection()->MutableMessage(message, field);
    field = v1::TableRef::descriptor()->FindFieldByName("layout");
  }
  return Named(absl::StrCat(name, ": "), WriteField(value, *field, message));
}

// Returns all presets, in file order. If an argument sets only the field of the same name, fills in
// its `fields`.
const presets::Presets& Presets() {
  static const auto& all = *[] {
    auto* presets = new presets::Presets;
    if (!google::protobuf::TextFormat::ParseFromString(kPresetsText, presets)) {
      std::abort();
    }
    for (presets::Preset& preset : *presets->mutable_presets()) {
      for (presets::Argument& argument : *preset.mutable_arguments()) {
        if (argument.fields().empty()) argument.add_fields()->set_name(argument.name());
      }
    }
    return presets;
  }();
  return all;
}

// Sets the fields to which a preset's argument refers.
absl::Status SetArgument(const NamedEncoding& encoding, const std::string& name,
                         absl::string_view value, Message* message) {
  for (const auto& argument : encoding.preset->arguments()) {
    absl::string_view suffix = name;
    if (!absl::ConsumePrefix(&suffix, argument.name()) ||
        (!suffix.empty() && suffix != kLayoutSuffix && suffix[0] != '.')) {
      continue;
    }
    const bool is_whole = suffix.empty() && value != kEmpty;
    if (is_whole && IsNested(*FieldAt(*message->GetDescriptor(), argument.fields(0).name()))) {
      break;
    }
    for (const presets::Field& sets : argument.fields()) {
      const std::string field = absl::StrCat(sets.name(), suffix);
      const absl::Status status = SetField(field, value, message);
      if (status.ok()) continue;
      if (field == name) return status;
      return Named(name, absl::InvalidArgumentError(status.message().substr(field.size())));
    }
    return absl::OkStatus();
  }
  return NoSuchField(name, ArgumentsOf(encoding));
}

// Chooses the encoding called `name` and sets its fields. INVALID_ARGUMENT names the encoding or
// field, the value received and the values accepted.
absl::Status SetEncoding(const std::string& name, const std::vector<std::string>& assignments,
                         v1::TensorSpec* spec) {
  const auto encoding = EncodingNamed(name);
  if (!encoding.ok()) return encoding.status();
  const presets::Preset* preset = encoding->preset;
  if (preset != nullptr) spec->MergeFrom(preset->spec());
  Message* message = spec->GetReflection()->MutableMessage(spec, encoding->field);
  std::set<std::string> seen;
  for (const std::string& assignment : assignments) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(assignment, absl::MaxSplits('=', 1));
    if (!absl::StrContains(assignment, '=')) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": got \"", assignment, "\", want FIELD=VALUE"));
    }
    if (!seen.insert(parts.first).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ".", parts.first, ": given twice, want it once"));
    }
    absl::Status status =
        Named(absl::StrCat(name, "."),
              preset == nullptr ? SetField(parts.first, parts.second, message)
                                : SetArgument(*encoding, parts.first, parts.second, message));
    if (!status.ok()) return status;
  }
  if (preset == nullptr) return absl::OkStatus();
  for (const presets::Argument& argument : preset->arguments()) {
    if (argument.required() && !seen.contains(argument.name())) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ".", argument.name(), ": not set, want a value"));
    }
    for (const presets::Field& field : argument.fields()) {
      const Descriptor& type = *message->GetDescriptor();
      if (!field.unless().empty() &&
          message->GetReflection()->GetBool(*message, type.FindFieldByName(field.unless()))) {
        message->GetReflection()->ClearField(message, type.FindFieldByName(field.name()));
      }
    }
  }
  return absl::OkStatus();
}

// Returns the extent that the encoding of `spec` requires: "table", "pair" or "grid".
std::string ExtentOf(const v1::TensorSpec& spec) {
  const Message& encoding = spec.GetReflection()->GetMessage(spec, EncodingIn(spec));
  std::vector<const FieldDescriptor*> fields;
  encoding.GetReflection()->ListFields(encoding, &fields);
  const bool is_second = absl::c_any_of(fields, [](const FieldDescriptor* field) {
    return field->options().GetExtension(v1::rule).structure_if_set() != v1::STRUCTURE_UNSPECIFIED;
  });
  const auto& extents = encoding.GetDescriptor()->options().GetRepeatedExtension(v1::extent);
  return is_second ? *extents.rbegin() : *extents.begin();
}

// Returns the flags that set an extent.
absl::string_view FlagsOf(absl::string_view extent) {
  if (extent == "table") return "--positions, --position-ids or --grid";
  return extent == "pair" ? "--query-length and --key-length"
                          : "--queries, --keys, --heads or --query-stride";
}

absl::Status SetFlag(const std::string& name, const std::string& value, const std::string& encoding,
                     v1::TensorSpec* spec) {
  const FieldDescriptor& extent = *spec->GetDescriptor()->FindFieldByName(ExtentOf(*spec));
  Message* owner = nullptr;
  if (v1::Mask::descriptor()->FindFieldByName(name) != nullptr) {
    owner = spec->mutable_output()->mutable_mask();
  } else if (v1::Output::descriptor()->FindFieldByName(name) != nullptr) {
    owner = spec->mutable_output();
  } else if (extent.message_type()->FindFieldByName(name) != nullptr) {
    owner = spec->GetReflection()->MutableMessage(spec, &extent);
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        FlagOf(name), ": got a value, want none: ", encoding, " takes ", FlagsOf(extent.name())));
  }
  const absl::Status status = SetField(name, value, owner);
  return Named(
      FlagOf(name),
      status.ok() ? status : absl::InvalidArgumentError(status.message().substr(name.size())));
}

}  // namespace

std::vector<Argument> ArgumentsOf(const NamedEncoding& encoding) {
  const Descriptor& type = *encoding.field->message_type();
  if (encoding.preset == nullptr) return ArgumentsOf(type);
  std::vector<Argument> arguments;
  for (const presets::Argument& argument : encoding.preset->arguments()) {
    const FieldDescriptor& field = *FieldAt(type, argument.fields(0).name());
    AppendArguments(argument.name(), field, argument.required() ? "required" : NeedOf(field),
                    &arguments);
  }
  return arguments;
}

std::vector<NamedEncoding> Encodings() {
  const auto* oneof = v1::TensorSpec::descriptor()->FindOneofByName("encoding");
  std::vector<NamedEncoding> encodings;
  encodings.reserve(oneof->field_count());
  for (int i = 0; i < oneof->field_count(); ++i) {
    encodings.push_back({std::string(oneof->field(i)->name()), oneof->field(i)});
  }
  for (const presets::Preset& preset : Presets().presets()) {
    encodings.push_back({preset.tool_name(), EncodingIn(preset.spec()), &preset});
  }
  return encodings;
}

absl::StatusOr<NamedEncoding> EncodingNamed(absl::string_view name) {
  std::vector<std::string> names;
  for (const NamedEncoding& encoding : Encodings()) {
    if (encoding.name == name) return encoding;
    names.push_back(encoding.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("encoding: got \"", name, "\", want one of ", absl::StrJoin(names, ", ")));
}

const v1::Range* HeadsOf(const v1::TensorSpec& spec) {
  if (spec.pair().has_heads()) return &spec.pair().heads();
  return spec.grid().has_heads() ? &spec.grid().heads() : nullptr;
}

std::string ShortName(const EnumDescriptor& type, absl::string_view value) {
  return absl::AsciiStrToLower(absl::StripPrefix(value, ValuePrefix(type)));
}

std::vector<std::string> ShortNames(const EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() == 0) continue;
    names.push_back(ShortName(type, type.value(i)->name()));
  }
  return names;
}

std::string EncodingText(const v1::TensorSpec& spec) {
  const FieldDescriptor* encoding = EncodingIn(spec);
  if (encoding == nullptr) return "";
  std::string text(encoding->name());
  AppendFields(spec.GetReflection()->GetMessage(spec, encoding), "", &text);
  return text;
}

std::string FlagOf(absl::string_view field) {
  return absl::StrCat("--", absl::StrReplaceAll(field, {{"_", "-"}}));
}

absl::StatusOr<v1::TensorSpec> BuildSpec(const TensorOptions& options) {
  v1::TensorSpec spec;
  absl::Status status = SetEncoding(options.encoding, options.fields, &spec);
  for (const auto& [name, values] : options.flags) {
    for (const std::string& value : values) {
      if (!status.ok()) return status;
      status = SetFlag(name, value, options.encoding, &spec);
    }
  }
  if (!status.ok()) return status;
  const v1::Mask& mask = spec.output().mask();
  if (mask.fill_case() != v1::Mask::FILL_NOT_SET && !mask.causal() && !mask.has_window_left() &&
      !mask.has_window_right()) {
    return absl::InvalidArgumentError(
        "--fill-value and --fill-lowest need a mask: --causal, --window-left "
        "or --window-right");
  }
  const std::string extent = ExtentOf(spec);
  if (extent != "grid" && spec.extent_case() == spec.EXTENT_NOT_SET) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.encoding, ": extent not set, want ", FlagsOf(extent)));
  }
  return spec;
}

}  // namespace attnbias
