// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/spec/field.h"

#include <bit>
#include <concepts>
#include <cstdlib>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"

namespace attnbias {
namespace {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

template <typename T>
concept IsNumber = std::same_as<T, int64_t> || std::same_as<T, double>;
template <typename T>
concept IsScalar = IsNumber<T> || std::same_as<T, bool>;

// Large powers of two as people write them.
std::string ToText(int64_t number) {
  const auto magnitude = static_cast<uint64_t>(std::abs(number));
  if (magnitude < (uint64_t{1} << 20) || !std::has_single_bit(magnitude)) {
    return absl::StrCat(number);
  }
  return absl::StrCat(number < 0 ? "-" : "", "2^", std::countr_zero(magnitude));
}

std::string ToText(bool value) { return value ? "true" : "false"; }
std::string ToText(double number) { return absl::StrCat(number); }

bool IsInteger(const Field::Member& member) {
  return std::holds_alternative<int64_t*>(member) ||
         std::holds_alternative<Defaulted<int64_t>*>(member) ||
         std::holds_alternative<std::optional<int64_t>*>(member) ||
         std::holds_alternative<std::vector<int64_t>*>(member);
}

bool IsList(const Field::Member& member) {
  return std::holds_alternative<std::vector<int64_t>*>(member) ||
         std::holds_alternative<std::vector<double>*>(member);
}

}  // namespace

Field& Field::In(double least, double most, std::string why) {
  bound_reason_ = std::move(why);
  bound_ = Bound::kClosed;
  least_ = least;
  most_ = most;
  return *this;
}

Field& Field::Above(double least, double most) {
  In(least, most);
  bound_ = Bound::kOpen;
  return *this;
}

Field& Field::AtMost(int64_t messages) {
  std::get<MessageMember>(member_).most = messages;
  return *this;
}

Field& Field::Finite() {
  constexpr double kMost = std::numeric_limits<double>::max();
  In(-kMost, kMost);
  bound_ = Bound::kFinite;
  return *this;
}

Field& Field::Required(bool when, std::string reason) {
  is_required_ = when;
  if (when) reason_ = std::move(reason);
  return *this;
}

Field& Field::Idle(bool when, std::string reason) {
  is_idle_ = when;
  if (when) reason_ = std::move(reason);
  return *this;
}

std::optional<std::string> Field::Given() const {
  using Text = std::optional<std::string>;
  return std::visit(
      Overloaded{[](const auto* value) -> Text { return ToText(*value); },
                 []<typename T>(const Defaulted<T>* value) -> Text {
                   if (!value->is_given()) return std::nullopt;
                   return ToText(static_cast<T>(*value));
                 },
                 []<typename T>(const std::optional<T>* value) -> Text {
                   if (!value->has_value()) return std::nullopt;
                   return ToText(**value);
                 },
                 [](const std::optional<Table>* table) -> Text {
                   if (!table->has_value()) return std::nullopt;
                   return "a table";
                 },
                 []<typename T>(const std::vector<T>* numbers) -> Text {
                   if (numbers->empty()) return std::nullopt;
                   return absl::StrCat(numbers->size(), " numbers");
                 },
                 [](const EnumMember& member) -> Text {
                   if (!member.is_given()) return std::nullopt;
                   return std::string(member.names[member.get() - 1]);
                 },
                 [](const MessageMember& member) -> Text {
                   const size_t size = member.elements().size();
                   if (size == 0) return std::nullopt;
                   return absl::StrCat(size, " elements");
                 }},
      member_);
}

bool Field::Allows(double number) const {
  if (bound_ == Bound::kNone) return true;
  // False for NaN.
  return number <= most_ &&
         (bound_ == Bound::kOpen ? number > least_ : number >= least_);
}

bool Field::Allows(int64_t number) const {
  return Allows(static_cast<double>(number)) && !(is_even_ && number % 2 != 0);
}

std::string Field::Wanted() const {
  if (const auto* member = std::get_if<EnumMember>(&member_)) {
    return JoinNames(member->names);
  }
  if (std::holds_alternative<std::optional<Table>*>(member_)) return "a table";
  if (bound_ == Bound::kNone) return "a value";
  if (bound_ == Bound::kFinite) return "a finite number";
  if (IsInteger(member_)) {
    return absl::StrCat(is_even_ ? "an even integer in [" : "an integer in [",
                        ToText(static_cast<int64_t>(least_)), ", ",
                        ToText(static_cast<int64_t>(most_)), "]");
  }
  return absl::StrCat("a number in ", bound_ == Bound::kOpen ? "(" : "[",
                      least_, ", ", most_, "]");
}

std::string Field::PathIn(std::string_view path) const {
  return absl::StrCat(std::string(path), path.empty() ? "" : ".",
                      std::string(name_));
}

absl::Status Field::NotSet(const std::string& field) const {
  return Invalid(field, ": not set, want ",
                 IsList(member_) ? "a list, each " : "", Wanted(),
                 reason_.empty() ? bound_reason_ : ", " + reason_);
}

template <typename Number>
absl::Status Field::CheckNumber(const std::string& field, Number number) const {
  if (Allows(number)) return absl::OkStatus();
  return Invalid(field, ": got ", number, ", want ", Wanted(), bound_reason_);
}

template <typename Number>
absl::Status Field::CheckNumbers(const std::string& field,
                                 const std::vector<Number>& numbers) const {
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (Allows(numbers[i])) continue;
    return CheckNumber(absl::StrCat(field, "[", i, "]"), numbers[i]);
  }
  return absl::OkStatus();
}

absl::Status Field::Check(std::string_view path, const Field& defaults) const {
  const std::string field = PathIn(path);
  if (is_idle_ || is_required_) {
    const std::optional<std::string> given = Given();
    if (is_idle_ && !given.has_value()) return absl::OkStatus();
    if (is_idle_) {
      return Invalid(field, ": got ", *given, ", want none: ", reason_);
    }
    if (!given.has_value()) return NotSet(field);
  }
  return std::visit(
      Overloaded{[&]<IsNumber T>(T* value) {
                   const bool is_set =
                       *value != *std::get<T*>(defaults.member_);
                   return is_set || Allows(*value) ? CheckNumber(field, *value)
                                                   : NotSet(field);
                 },
                 [&]<IsNumber T>(Defaulted<T>* value) {
                   return CheckNumber<T>(field, *value);
                 },
                 [&]<IsNumber T>(std::optional<T>* value) {
                   return value->has_value() ? CheckNumber(field, **value)
                                             : absl::OkStatus();
                 },
                 [&]<typename T>(std::vector<T>* values) {
                   return CheckNumbers(field, *values);
                 },
                 [](const auto& /*not a number*/) { return absl::OkStatus(); }},
      member_);
}

void Field::WriteIdentity(const Field& defaults,
                          CanonicalWriter& writer) const {
  const auto write = [&]<IsScalar T>(T value,
                                     std::type_identity_t<T> default_value) {
    if constexpr (std::is_same_v<T, double>) {
      writer.Real(number_, value, default_value);
    } else {
      writer.Integer(number_, value, default_value);
    }
  };
  // Of the field that is all defaults, the same member.
  const auto of_defaults = [&](const auto& member) -> const auto& {
    return std::get<std::decay_t<decltype(member)>>(defaults.member_);
  };
  std::visit(
      Overloaded{
          [&]<IsScalar T>(T* value) { write(*value, *of_defaults(value)); },
          [&]<typename T>(Defaulted<T>* value) {
            write(static_cast<T>(*value), *of_defaults(value));
          },
          [&]<IsScalar T>(std::optional<T>* value) {
            const auto absent = static_cast<T>(absent_);
            write(value->value_or(absent), absent);
          },
          [&](std::optional<Table>* table) {
            if (table->has_value()) writer.Bytes(number_, (*table)->sha256());
          },
          [&](std::vector<double>* values) { writer.Reals(number_, *values); },
          [&](std::vector<int64_t>* values) {
            writer.Integers(number_, *values);
          },
          [&](const EnumMember& member) {
            writer.Integer(number_, member.get(), of_defaults(member).get());
          },
          [&](const MessageMember& member) {
            // Of lists there are those of tables alone.
            std::string digests;
            for (const FieldList& element : member.elements()) {
              for (const Field& field : element) {
                const auto& table =
                    *std::get<std::optional<Table>*>(field.member_);
                absl::StrAppend(&digests,
                                table.has_value() ? table->sha256() : "", ";");
              }
            }
            writer.Bytes(number_, digests);
          }},
      member_);
}

FieldList FieldsOf(Range& range) {
  return {Field(1, "begin", range.begin), Field(2, "end", range.end)};
}

FieldList FieldsOf(std::vector<int64_t>& positions) {
  return {Field(1, "positions", positions)};
}

absl::Status CheckFields(std::string_view path, const FieldList& fields,
                         const FieldList& defaults, bool buckets) {
  for (size_t i = 0; i < fields.size(); ++i) {
    if (buckets && fields[i].is_of_bias()) continue;
    ATTNBIAS_RETURN_IF_ERROR(fields[i].Check(path, defaults[i]));
  }
  return absl::OkStatus();
}

void WriteIdentity(const FieldList& fields, const FieldList& defaults,
                   bool buckets, CanonicalWriter& writer) {
  for (size_t i = 0; i < fields.size(); ++i) {
    if (!fields[i].is_in_identity() || (buckets && fields[i].is_of_bias())) {
      continue;
    }
    fields[i].WriteIdentity(defaults[i], writer);
  }
}

std::string JoinNames(absl::Span<const std::string_view> names) {
  std::string joined;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) joined += i + 1 == names.size() ? " or " : ", ";
    joined += names[i];
  }
  return joined;
}

}  // namespace attnbias
