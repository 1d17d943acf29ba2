// SPDX-License-Identifier: Apache-2.0
#include "core/request/rules.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "attnbias/v1/encodings.pb.h"
#include "attnbias/v1/logits.pb.h"
#include "core/base/canonical_writer.h"
#include "core/base/errors.h"
#include "google/protobuf/reflection.h"

namespace attnbias {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Fields = std::vector<const FieldDescriptor*>;

bool IsInteger(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_INT32 ||
         field.cpp_type() == FieldDescriptor::CPPTYPE_INT64;
}
bool IsNumber(const FieldDescriptor& field) {
  return IsInteger(field) || field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
}
bool IsMessage(const FieldDescriptor& field) { return field.message_type() != nullptr; }
// Returns whether the field means an empty message if it is unset.
bool IsEmptyByDefault(const FieldDescriptor& field) {
  return IsMessage(field) && !field.options().GetExtension(v1::rule).default_().empty();
}
bool IsTable(const FieldDescriptor& field) {
  return field.message_type() == v1::TableRef::descriptor();
}

bool IsSet(const Message& message, const FieldDescriptor& field) {
  return field.is_repeated() ? message.GetReflection()->FieldSize(message, &field) > 0
                             : message.GetReflection()->HasField(message, &field);
}

int64_t IntegerIn(const Message& message, const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_INT32
             ? message.GetReflection()->GetInt32(message, &field)
             : message.GetReflection()->GetInt64(message, &field);
}

// Returns the value of a singular number, bool or enum.
double ScalarIn(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.GetDouble(message, &field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) ? 1 : 0;
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.GetEnumValue(message, &field);
    default:
      return static_cast<double>(IntegerIn(message, field));
  }
}

void SetScalar(Message& message, const FieldDescriptor& field, double value) {
  const auto& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.SetDouble(&message, &field, value);
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(&message, &field, value != 0);
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.SetEnumValue(&message, &field, static_cast<int>(value));
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(&message, &field, static_cast<int32_t>(value));
    default:
      return reflection.SetInt64(&message, &field, static_cast<int64_t>(value));
  }
}

template <typename Number, typename Wide = Number>
std::vector<Wide> ListIn(const Message& message, const FieldDescriptor& field) {
  const auto list = message.GetReflection()->GetRepeatedFieldRef<Number>(message, &field);
  return {list.begin(), list.end()};
}

std::vector<int64_t> IntegersIn(const Message& message, const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_INT32
             ? ListIn<int32_t, int64_t>(message, field)
             : ListIn<int64_t>(message, field);
}

// Returns each element of a field of messages, singular or repeated.
std::vector<const Message*> MessagesIn(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  std::vector<const Message*> messages;
  if (field.is_repeated()) {
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      messages.push_back(&reflection.GetRepeatedMessage(message, &field, i));
    }
  } else if (IsSet(message, field)) {
    messages.push_back(&reflection.GetMessage(message, &field));
  }
  return messages;
}

// Formats large powers of two as people write them.
std::string ToText(int64_t number) {
  const auto magnitude = static_cast<uint64_t>(std::abs(number));
  if (magnitude < (uint64_t{1} << 20) || !std::has_single_bit(magnitude)) {
    return absl::StrCat(number);
  }
  return absl::StrCat(number < 0 ? "-" : "", "2^", std::countr_zero(magnitude));
}

Fields FieldsOf(const google::protobuf::OneofDescriptor& choice) {
  Fields fields;
  for (int i = 0; i < choice.field_count(); ++i) {
    fields.push_back(choice.field(i));
  }
  return fields;
}

std::string NamesOf(const Fields& fields) {
  return absl::StrJoin(fields, ", ", [](std::string* out, const auto* field) {
    absl::StrAppend(out, field->name());
  });
}

struct FieldRules {
  const FieldDescriptor* field;
  const v1::FieldRule* rule;
  std::optional<double> default_value;
  bool is_required = false;
  bool has_bounds = false;
  Fields given_by;
  const FieldDescriptor* only_with = nullptr;
  const FieldDescriptor* not_with = nullptr;
};

// Rules of a message's fields, in the order of the contract.
using MessageRules = std::vector<FieldRules>;
using RulesByType = absl::flat_hash_map<const Descriptor*, MessageRules>;

double ParseDefault(const FieldDescriptor& field, const std::string& text) {
  if (field.enum_type() != nullptr) return field.enum_type()->FindValueByName(text)->number();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) return text == "true";
  double value = 0;
  if (!absl::SimpleAtod(text, &value)) std::abort();
  return value;
}

FieldRules RulesOfField(const FieldDescriptor& field) {
  const Descriptor& type = *field.containing_type();
  const v1::FieldRule& rule = field.options().GetExtension(v1::rule);
  FieldRules rules = {.field = &field, .rule = &rule};
  if (!rule.default_().empty() && !IsMessage(field)) {
    rules.default_value = ParseDefault(field, rule.default_());
  }
  const bool is_plain_bool =
      field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL && !field.has_presence();
  rules.is_required = rule.required() || (!field.is_repeated() && !IsMessage(field) &&
                                          !rule.has_default_() && !is_plain_bool);
  rules.has_bounds = rule.has_min() || rule.has_max() || rule.has_above() || rule.finite();
  const std::vector<std::string> names = absl::StrSplit(rule.given_by(), '|', absl::SkipEmpty());
  for (const std::string& name : names) rules.given_by.push_back(type.FindFieldByName(name));
  rules.only_with = type.FindFieldByName(rule.only_with());
  rules.not_with = type.FindFieldByName(rule.not_with());
  return rules;
}

void Compile(const Descriptor& type, RulesByType& all) {
  if (!all.try_emplace(&type).second) return;
  MessageRules rules;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    rules.push_back(RulesOfField(field));
    if (IsMessage(field) && !IsTable(field)) Compile(*field.message_type(), all);
  }
  all[&type] = std::move(rules);
}

const MessageRules& RulesOf(const Message& message) {
  static const auto& all = *new RulesByType([] {
    RulesByType compiled;
    Compile(*v1::TensorSpec::descriptor(), compiled);
    Compile(*v1::LogitsSpec::descriptor(), compiled);
    return compiled;
  }());
  return all.at(message.GetDescriptor());
}

// Returns whether a message or a list is set, or a scalar, perhaps by default, is not 0.
bool IsActive(const Message& message, const FieldDescriptor& field) {
  const bool is_set = IsSet(message, field);
  if (field.is_repeated() || IsMessage(field)) return is_set;
  if (is_set) return ScalarIn(message, field) != 0;
  return RulesOf(message)[field.index()].default_value.value_or(0) != 0;
}

// Returns why a field is meaningless in combination with others, as the end of an error; "" if it
// is meaningful.
std::string WhyIdle(const Message& message, const FieldRules& field) {
  if (field.only_with != nullptr && !IsActive(message, *field.only_with)) {
    return absl::StrCat(" without ", field.only_with->name());
  }
  if (field.not_with != nullptr && IsActive(message, *field.not_with)) {
    return absl::StrCat(": ", field.not_with->name(), " is set");
  }
  return "";
}

// Returns the value of `given_by`.
int64_t Derived(const Message& message, const FieldRules& field, const Tables& tables) {
  const auto length_in = [&](const Message& owner, const FieldDescriptor& of) {
    const auto table =
        tables.Get(static_cast<const v1::TableRef&>(owner.GetReflection()->GetMessage(owner, &of)));
    if (!table.has_value() || table->shape().size() != 2) return int64_t{0};
    return table->shape()[absl::EndsWith(of.name(), "weight") ? 0 : 1];
  };
  int64_t longest = 0;
  for (const FieldDescriptor* by : field.given_by) {
    if (IsTable(*by)) return length_in(message, *by);
    if (IsMessage(*by)) {
      const auto elements = MessagesIn(message, *by);
      if (elements.empty()) return 0;
      return length_in(*elements.back(), *by->message_type()->FindFieldByName("weight"));
    }
    longest = std::max<int64_t>(longest, message.GetReflection()->FieldSize(message, by));
  }
  // One of several lists may contain a single number for all.
  return field.given_by.size() > 1 && longest == 1 ? 0 : longest;
}

// Returns the given value, formatted for errors.
std::string Given(const Message& message, const FieldDescriptor& field) {
  if (IsTable(field)) return "a table";
  if (field.is_repeated()) {
    return absl::StrCat(message.GetReflection()->FieldSize(message, &field),
                        IsMessage(field) ? " elements" : " numbers");
  }
  if (IsMessage(field)) return "a value";
  if (IsInteger(field)) return absl::StrCat(IntegerIn(message, field));
  const double value = ScalarIn(message, field);
  if (field.enum_type() != nullptr) {
    return ShortName(*field.enum_type(), static_cast<int>(value));
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
    return value != 0 ? "true" : "false";
  }
  return absl::StrCat(value);
}

// Returns the allowed values, formatted for errors.
std::string Wanted(const FieldRules& rules) {
  const FieldDescriptor& field = *rules.field;
  const v1::FieldRule& rule = *rules.rule;
  std::string wanted = "a value";
  if (IsTable(field)) {
    wanted = absl::StrCat("a table of [", rule.shape(), "]");
  } else if (field.enum_type() != nullptr) {
    wanted = ShortNames(*field.enum_type());
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
    wanted = "true or false";
  } else if (IsMessage(field) && field.is_repeated()) {
    wanted = absl::StrCat("1 to ", rule.max_items(), " elements");
  } else if (rule.finite()) {
    wanted = "a finite number";
  } else if (IsInteger(field) && rule.has_min()) {
    const auto least = static_cast<int64_t>(rule.min());
    const std::string kind = rule.even() ? "an even integer" : "an integer";
    wanted = rule.max() >= 0x1p63 ? absl::StrCat(kind, " of at least ", least)
                                  : absl::StrCat(kind, " in [", ToText(least), ", ",
                                                 ToText(static_cast<int64_t>(rule.max())), "]");
  } else if (IsNumber(field)) {
    wanted = absl::StrCat("a number in ", rule.has_above() ? "(" : "[",
                          rule.has_above() ? rule.above() : rule.min(), ", ", rule.max(), "]");
  }
  return absl::StrCat(field.is_repeated() && !IsMessage(field) ? "a list, each " : "", wanted,
                      rule.hint().empty() ? "" : ", ", rule.hint());
}

// Returns whether the rule allows the number. A rule with bounds rejects NaN.
bool Allows(const v1::FieldRule& rule, double number) {
  if (rule.finite() && !std::isfinite(number)) return false;
  if (rule.has_min() && !(number >= rule.min())) return false;
  if (rule.has_above() && !(number > rule.above())) return false;
  if (rule.has_max() && !(number <= rule.max())) return false;
  return !rule.even() || std::fmod(number, 2) == 0;
}

template <typename Number>
absl::Status CheckNumbers(absl::string_view parent, const FieldRules& rules,
                          const std::vector<Number>& numbers) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (Allows(*rules.rule, static_cast<double>(numbers[i]))) continue;
    std::string wanted = Wanted(rules);
    return Invalid(PathOf(parent, *rules.field), "[", i, "]: got ", numbers[i], ", want ",
                   wanted.substr(wanted.find(", each ") + 7));
  }
  return absl::OkStatus();
}

absl::Status Check(absl::string_view parent, const FieldRules& rules, const Message& message) {
  const FieldDescriptor& field = *rules.field;
  const auto refuse = [&](const auto&... parts) {
    return Invalid(PathOf(parent, field), ": ", parts...);
  };
  const bool is_set = IsSet(message, field);
  if (const std::string why = WhyIdle(message, rules); !why.empty()) {
    if (!is_set) return absl::OkStatus();
    return refuse("got ", Given(message, field), ", want none", why);
  }
  if (!is_set) {
    const auto* choice = field.real_containing_oneof();
    if (choice != nullptr && rules.rule->of_bias() &&
        !message.GetReflection()->HasOneof(message, choice)) {
      const Fields fields = FieldsOf(*choice);
      return Invalid(PathOf(parent, *fields.back()), ": not set, want exactly one of ",
                     NamesOf(fields), ", or values BUCKETS");
    }
    if (!rules.is_required) return absl::OkStatus();
    return refuse("not set, want ", Wanted(rules));
  }
  const int64_t most = rules.rule->max_items();
  if (field.is_repeated() && most > 0 &&
      message.GetReflection()->FieldSize(message, &field) > most) {
    return refuse("got ", Given(message, field), ", want at most ", most);
  }
  if (!rules.has_bounds) return absl::OkStatus();
  if (field.is_repeated()) {
    return IsInteger(field) ? CheckNumbers(parent, rules, IntegersIn(message, field))
                            : CheckNumbers(parent, rules, ListIn<double>(message, field));
  }
  if (Allows(*rules.rule, ScalarIn(message, field))) return absl::OkStatus();
  return refuse("got ", Given(message, field), ", want ", Wanted(rules));
}

}  // namespace

std::string PathOf(absl::string_view parent, const FieldDescriptor& field) {
  return absl::StrCat(parent, parent.empty() ? "" : ".", field.name());
}

absl::Status ForEachMessage(Message& message, const FieldDescriptor& field, const std::string& path,
                            absl::FunctionRef<absl::Status(const std::string&, Message&)> visit) {
  const auto& reflection = *message.GetReflection();
  if (!field.is_repeated()) {
    if (!IsSet(message, field)) return absl::OkStatus();
    return visit(path, *reflection.MutableMessage(&message, &field));
  }
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    ATTNBIAS_RETURN_IF_ERROR(visit(absl::StrCat(path, "[", i, "]"),
                                   *reflection.MutableRepeatedMessage(&message, &field, i)));
  }
  return absl::OkStatus();
}

absl::Status Complete(absl::string_view path, bool buckets, const Tables& tables,
                      Message& message) {
  const auto& reflection = *message.GetReflection();
  const MessageRules& all = RulesOf(message);
  for (const FieldRules& rules : all) {
    if (rules.given_by.empty() || IsSet(message, *rules.field)) continue;
    SetScalar(message, *rules.field, static_cast<double>(Derived(message, rules, tables)));
  }
  for (const FieldRules& rules : all) {
    const FieldDescriptor& field = *rules.field;
    if (buckets && rules.rule->of_bias()) continue;
    ATTNBIAS_RETURN_IF_ERROR(Check(path, rules, message));
    if (!IsMessage(field) || IsTable(field)) continue;
    ATTNBIAS_RETURN_IF_ERROR(ForEachMessage(message, field, PathOf(path, field),
                                            [&](const std::string& inner, Message& element) {
                                              return Complete(inner, buckets, tables, element);
                                            }));
  }
  // Defaults do not change which fields have a meaning.
  for (const FieldRules& rules : all) {
    const FieldDescriptor& field = *rules.field;
    const auto* choice = field.real_containing_oneof();
    const bool is_given =
        choice != nullptr ? reflection.HasOneof(message, choice) : IsSet(message, field);
    if (is_given || !WhyIdle(message, rules).empty()) continue;
    if (rules.default_value.has_value()) {
      SetScalar(message, field, *rules.default_value);
    } else if (IsEmptyByDefault(field)) {
      ATTNBIAS_RETURN_IF_ERROR(Complete(PathOf(path, field), buckets, tables,
                                        *reflection.MutableMessage(&message, &field)));
    }
  }
  return absl::OkStatus();
}

std::string IdentityOf(const Message& message, bool buckets, const Tables& tables) {
  CanonicalWriter writer("", 0);
  for (const FieldRules& rules : RulesOf(message)) {
    const FieldDescriptor& field = *rules.field;
    const int number = field.number();
    if ((buckets && rules.rule->of_bias()) || !IsSet(message, field)) continue;
    if (IsTable(field)) {
      writer.Bytes(number, static_cast<const v1::TableRef&>(
                               message.GetReflection()->GetMessage(message, &field))
                               .sha256());
    } else if (IsMessage(field)) {
      std::string elements;
      static const auto& empty = *new std::string(CanonicalWriter("", 0).bytes());
      for (const Message* element : MessagesIn(message, field)) {
        const std::string inner = IdentityOf(*element, buckets, tables);
        if (IsEmptyByDefault(field) && inner == empty) continue;
        absl::StrAppend(&elements, inner.size(), ":", inner);
      }
      writer.Bytes(number, elements);
    } else if (field.is_repeated()) {
      if (IsInteger(field)) {
        writer.Integers(number, IntegersIn(message, field));
      } else {
        writer.Reals(number, ListIn<double>(message, field));
      }
    } else {
      // A field without a default is written whenever it is set.
      double without = rules.default_value.value_or(std::numeric_limits<double>::quiet_NaN());
      if (!field.has_presence() && !rules.default_value.has_value()) {
        without = static_cast<double>(Derived(message, rules, tables));
      }
      const double value = ScalarIn(message, field);
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
        writer.Real(number, value, without);
      } else if (value != without) {
        writer.Integer(number,
                       IsInteger(field) ? IntegerIn(message, field) : static_cast<int64_t>(value),
                       std::numeric_limits<int64_t>::min());
      }
    }
  }
  return writer.bytes();
}

absl::StatusOr<const FieldDescriptor*> FieldIn(absl::string_view oneof, const Message& message) {
  const auto& choice = *message.GetDescriptor()->FindOneofByName(std::string(oneof));
  const FieldDescriptor* const field =
      message.GetReflection()->GetOneofFieldDescriptor(message, &choice);
  if (field != nullptr) return field;
  return Invalid(oneof, ": not set, want one of ", NamesOf(FieldsOf(choice)));
}

std::string ShortName(const EnumDescriptor& type, int value) {
  const size_t prefix = type.value(0)->name().size() - std::string_view("UNSPECIFIED").size();
  return std::string(type.FindValueByNumber(value)->name().substr(prefix));
}

std::string ShortNames(const EnumDescriptor& type) {
  std::string joined;
  for (int i = 1; i < type.value_count(); ++i) {
    if (i > 1) joined += i + 1 == type.value_count() ? " or " : ", ";
    joined += ShortName(type, type.value(i)->number());
  }
  return joined;
}

}  // namespace attnbias
