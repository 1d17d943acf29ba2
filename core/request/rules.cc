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
#include "core/base/digest.h"
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
bool IsMessage(const FieldDescriptor& field) { return field.message_type() != nullptr; }
// Returns whether the field, if unset, means an empty message.
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

// Returns the value of a singular number, bool or enum field.
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

// Returns each message in a singular or repeated message field.
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

std::string NamesOf(const google::protobuf::OneofDescriptor& choice) {
  std::vector<std::string> names;
  for (int i = 0; i < choice.field_count(); ++i) names.emplace_back(choice.field(i)->name());
  return absl::StrJoin(names, ", ");
}

struct FieldRules {
  const FieldDescriptor* field;
  const v1::FieldRule* rule;
  std::optional<double> default_value;
  bool is_required = false;
  bool has_bounds = false;
  // Axes of a table, or the length of a list.
  std::vector<std::string> shape;
  Fields given_by;
  const FieldDescriptor* only_with = nullptr;
  const FieldDescriptor* not_with = nullptr;
};

// Rules for a message's fields, in the contract's order.
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
  rules.has_bounds =
      !IsMessage(field) && (rule.has_min() || rule.has_max() || rule.has_above() || rule.finite());
  rules.shape = absl::StrSplit(rule.shape(), ", ", absl::SkipEmpty());
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

// Returns whether a message or list is set, or whether a scalar (its default if unset) is nonzero.
bool IsActive(const Message& message, const FieldDescriptor& field) {
  const bool is_set = IsSet(message, field);
  if (field.is_repeated() || IsMessage(field)) return is_set;
  if (is_set) return ScalarIn(message, field) != 0;
  return RulesOf(message)[field.index()].default_value.value_or(0) != 0;
}

// Returns why a field is meaningless in combination with others, as the end of an error message; ""
// if it is meaningful.
std::string WhyIdle(const Message& message, const FieldRules& field) {
  if (field.only_with != nullptr && !IsActive(message, *field.only_with)) {
    return absl::StrCat(" without ", field.only_with->name());
  }
  if (field.not_with != nullptr && IsActive(message, *field.not_with)) {
    return absl::StrCat(": ", field.not_with->name(), " is set");
  }
  return "";
}

std::optional<Table> TableIn(const Message& message, const FieldDescriptor& field,
                             const Tables& tables) {
  return tables.Get(
      static_cast<const v1::TableRef&>(message.GetReflection()->GetMessage(message, &field)));
}

// Returns the value that `given_by` determines.
int64_t Derived(const Message& message, const FieldRules& field, const Tables& tables) {
  const auto length_in = [&](const Message& owner, const FieldDescriptor& of) {
    const std::optional<Table> table = TableIn(owner, of, tables);
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
  // One of several lists may contain a single value for all.
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

// Returns the allowed values, or the values allowed in a table, formatted for errors.
std::string Wanted(const FieldRules& rules, bool in_table = false) {
  const FieldDescriptor& field = *rules.field;
  const v1::FieldRule& rule = *rules.rule;
  std::string wanted = "a value";
  if (IsTable(field) && !in_table) {
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
  } else if (!IsMessage(field) || in_table) {
    wanted = absl::StrCat("a number in ", rule.has_above() ? "(" : "[",
                          rule.has_above() ? rule.above() : rule.min(), ", ", rule.max(), "]");
  }
  if (rule.least_magnitude() > 0 && (in_table || !IsTable(field))) {
    absl::StrAppend(&wanted, rule.nonzero() ? "," : ", 0 or", " of magnitude at least ",
                    rule.least_magnitude());
  } else if (rule.nonzero()) {
    wanted += " other than 0";
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
  if (number == 0 ? rule.nonzero() : std::fabs(number) < rule.least_magnitude()) return false;
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
    // The last field of a oneof reports that none is set.
    const bool is_reported =
        choice == nullptr || (&field == choice->field(choice->field_count() - 1) &&
                              !message.GetReflection()->HasOneof(message, choice));
    if (!rules.is_required || !is_reported) return absl::OkStatus();
    return refuse(
        "not set, want ",
        choice == nullptr ? Wanted(rules) : absl::StrCat("exactly one of ", NamesOf(*choice)),
        rules.rule->of_bias() ? ", or values BUCKETS" : "");
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

namespace {

// Resolves names in a message's shapes: its fields, the fields of the enclosing messages, and the
// lengths of its tables.
struct ShapeScope {
  const Message& message;
  const ShapeScope* outer;
  absl::flat_hash_map<std::string, int64_t> lengths = {};

  std::optional<int64_t> ValueOf(const std::string& name) const {
    int64_t number = 0;
    if (absl::SimpleAtoi(name, &number)) return number;
    for (const ShapeScope* scope = this; scope != nullptr; scope = scope->outer) {
      const Message& owner = scope->message;
      const FieldDescriptor* const field = owner.GetDescriptor()->FindFieldByName(name);
      if (field == nullptr || (IsMessage(*field) && !field->is_repeated())) continue;
      return field->is_repeated() ? owner.GetReflection()->FieldSize(owner, field)
                                  : static_cast<int64_t>(ScalarIn(owner, *field));
    }
    const auto found = lengths.find(name);
    if (found == lengths.end()) return std::nullopt;
    return found->second;
  }

  // Returns nothing if a name is unknown.
  std::optional<int64_t> LengthOf(const std::string& sum) const {
    int64_t length = 0;
    for (const absl::string_view product : absl::StrSplit(sum, " + ")) {
      int64_t value = 1;
      for (const absl::string_view factor : absl::StrSplit(product, " * ")) {
        const std::optional<int64_t> number = ValueOf(std::string(factor));
        if (!number.has_value()) return std::nullopt;
        value *= *number;
      }
      length += value;
    }
    return length;
  }
};

// Checks the lengths of a table's axes, or the length of a list. The first table whose shape
// contains an unknown name defines the length that the name stands for.
absl::Status CheckShape(const std::string& path, const FieldRules& rules,
                        absl::Span<const int64_t> got, ShapeScope& scope) {
  std::vector<std::string> axes = rules.shape;
  if (std::string& first = axes.front(); first.ends_with('?')) {
    first.pop_back();
    if (got.size() < axes.size()) axes.erase(axes.begin());
  }
  const bool has_rank = got.size() == axes.size();
  bool fits = has_rank;
  std::vector<std::string> wanted;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    bool matches = false;
    std::vector<std::string> lengths = absl::StrSplit(axes[axis], " or ");
    for (std::string& length : lengths) {
      std::optional<int64_t> value = scope.LengthOf(length);
      if (!value.has_value() && has_rank) value = scope.lengths[length] = got[axis];
      matches |= has_rank && value == got[axis];
      if (value.has_value()) length = absl::StrCat(*value);
    }
    fits &= matches;
    wanted.push_back(absl::StrJoin(lengths, " or "));
  }
  if (fits) return absl::OkStatus();
  if (rules.field->is_repeated()) {
    return Invalid(path, ": got ", got[0], " numbers, want ", wanted[0], " (", axes[0], ")");
  }
  const bool has_layout = axes.size() == 2 && absl::StartsWith(axes[1], "num_heads");
  return Invalid(path, ": got shape [", absl::StrJoin(got, ", "), "], want [",
                 absl::StrJoin(axes, ", "), "] = [", absl::StrJoin(wanted, ", "), "]",
                 has_layout ? "; see the table's layout" : "");
}

absl::Status CheckTable(const std::string& path, const FieldRules& rules, const Table& table,
                        ShapeScope& scope) {
  ATTNBIAS_RETURN_IF_ERROR(CheckShape(path, rules, table.shape(), scope));
  // Types whose values are all within the bounds need no search.
  if (Allows(*rules.rule, LowestOf(table.data_type()))) return absl::OkStatus();
  for (int64_t i = 0; i < table.size(); ++i) {
    if (Allows(*rules.rule, table.At(i))) continue;
    return Invalid(path, ": got ", table.At(i), " at index ", i, ", want ",
                   Wanted(rules, /*in_table=*/true));
  }
  return absl::OkStatus();
}

absl::Status CompleteIn(absl::string_view path, bool buckets, const Tables& tables,
                        Message& message, const ShapeScope* outer) {
  const auto& reflection = *message.GetReflection();
  const MessageRules& all = RulesOf(message);
  for (const FieldRules& rules : all) {
    if (rules.given_by.empty() || IsSet(message, *rules.field)) continue;
    SetScalar(message, *rules.field, static_cast<double>(Derived(message, rules, tables)));
  }
  for (const FieldRules& rules : all) {
    if (buckets && rules.rule->of_bias()) continue;
    ATTNBIAS_RETURN_IF_ERROR(Check(path, rules, message));
  }
  // Defaults do not change which fields are meaningful.
  for (const FieldRules& rules : all) {
    const FieldDescriptor& field = *rules.field;
    const auto* choice = field.real_containing_oneof();
    const bool is_given =
        choice != nullptr ? reflection.HasOneof(message, choice) : IsSet(message, field);
    if (is_given || !WhyIdle(message, rules).empty()) continue;
    if (rules.default_value.has_value()) {
      SetScalar(message, field, *rules.default_value);
    } else if (IsEmptyByDefault(field)) {
      reflection.MutableMessage(&message, &field);
    }
  }
  ShapeScope scope = {message, outer};
  for (const FieldRules& rules : all) {
    const FieldDescriptor& field = *rules.field;
    if ((buckets && rules.rule->of_bias()) || !IsSet(message, field)) continue;
    const auto place = [&] { return PathOf(path, field); };
    if (IsTable(field)) {
      ATTNBIAS_RETURN_IF_ERROR(CheckTable(place(), rules, *TableIn(message, field, tables), scope));
    } else if (IsMessage(field)) {
      ATTNBIAS_RETURN_IF_ERROR(
          ForEachMessage(message, field, place(), [&](const std::string& inner, Message& element) {
            return CompleteIn(inner, buckets, tables, element, &scope);
          }));
    } else if (!rules.shape.empty()) {
      ATTNBIAS_RETURN_IF_ERROR(
          CheckShape(place(), rules, {int64_t{reflection.FieldSize(message, &field)}}, scope));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Complete(absl::string_view path, bool buckets, const Tables& tables,
                      Message& message) {
  return CompleteIn(path, buckets, tables, message, nullptr);
}

std::string IdentityOf(const Message& message, bool buckets, const Tables& tables) {
  CanonicalWriter writer("", 0);
  for (const FieldRules& rules : RulesOf(message)) {
    const FieldDescriptor& field = *rules.field;
    const int number = field.number();
    if ((buckets && rules.rule->of_bias()) || !IsSet(message, field)) continue;
    if (IsTable(field)) {
      writer.Bytes(number, TableIn(message, field, tables)->sha256());
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
  return Invalid(oneof, ": not set, want one of ", NamesOf(choice));
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
