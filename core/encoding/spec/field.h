// SPDX-License-Identifier: Apache-2.0
// The list of a spec's fields. A spec names each of its fields once, with its
// number in the contract; decoding, encoding, checks and identity all follow
// from the list.
//
//   struct ConformerSpec {
//     static constexpr std::string_view kName = "conformer";
//     int64_t dim = 0;
//     double base = 10000;
//
//     FieldList Fields() {
//       return {Field(1, "dim", dim).In(2, 65536).Even(),
//               Field(2, "base", base).In(1, 1e18)};
//     }
//   };
//
// A member's type says what the contract says of the field:
//
//   T               required, or with a default that always has a meaning
//   Defaulted<T>    with a default, and idle beside some other settings
//   std::optional   may be missing
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_FIELD_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_FIELD_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/base/canonical_writer.h"
#include "core/table/table.h"
#include "core/tensor/range.h"

namespace attnbias {

// A value that is a default until another is given.
template <typename T>
class Defaulted {
 public:
  using value_type = T;

  // What was given, even where it equals the default.
  Defaulted(T value) : value_(value), is_given_(true) {}  // NOLINT: a T
  operator T() const { return value_; }                   // NOLINT: a T

  bool is_given() const { return is_given_; }

 private:
  template <typename U>
  friend Defaulted<U> DefaultsTo(U value);

  T value_;
  bool is_given_;
};

template <typename T>
Defaulted<T> DefaultsTo(T value) {
  Defaulted<T> result(value);
  result.is_given_ = false;
  return result;
}

// The T in T, Defaulted<T> or std::optional<T>.
template <typename T>
struct ValueIn {
  using Type = T;
};
template <typename T>
struct ValueIn<Defaulted<T>> {
  using Type = T;
};
template <typename T>
struct ValueIn<std::optional<T>> {
  using Type = T;
};

// The contract's names of an enum's values 1, 2, ... without their prefix. An
// enum of a spec specializes it with an array of std::string_view.
template <typename Enum>
inline constexpr std::nullptr_t kEnumNames = nullptr;

template <typename Enum>
std::string_view NameOfEnum(Enum value) {
  return kEnumNames<Enum>[static_cast<size_t>(value) - 1];
}

class Field;
using FieldList = std::vector<Field>;

// A member that is an enum, whichever.
struct EnumMember {
  absl::Span<const std::string_view> names;
  // 0 is "not set".
  std::function<int()> get;
  std::function<void(int)> set;
  // Whether it was set, and not left at its default.
  std::function<bool()> is_given;
};

// A member that is a message, one that may be missing, or a list of them, each
// with fields of its own.
struct MessageMember {
  // Null where there is always one.
  std::function<void(int64_t)> resize;
  std::function<std::vector<FieldList>()> elements;
  // Of a list.
  int64_t most = 0;
};

// One field of one spec; refers to its member.
class Field {
 public:
  using Member = std::variant<
      int64_t*, double*, bool*, Defaulted<int64_t>*, Defaulted<double>*,
      Defaulted<bool>*, std::optional<int64_t>*, std::optional<double>*,
      std::optional<bool>*, std::optional<Table>*, std::vector<double>*,
      std::vector<int64_t>*, EnumMember, MessageMember>;

  template <typename T>
  Field(int number, std::string_view name, T& member)
      : number_(number), name_(name), member_(MemberOf(member)) {}

  // Numbers must lie in [least, most], those of a list each. `why` may end the
  // message.
  Field& In(double least, double most, std::string why = "");
  // The same without `least` itself.
  Field& Above(double least, double most);
  Field& Finite();
  Field& Even() {
    is_even_ = true;
    return *this;
  }
  // A list of messages has no more.
  Field& AtMost(int64_t messages);
  // Must be set, for a reason that a message may give.
  Field& Required(bool when = true, std::string reason = "");
  // Has no meaning then, and must not be set.
  Field& Idle(bool when, std::string reason);
  // What an optional number that is not set counts as.
  Field& Default(int64_t value) {
    default_ = value;
    absent_ = value;
    return *this;
  }
  // An optional number of this value has the identity of one that is not set.
  Field& Absent(int64_t value) {
    absent_ = value;
    return *this;
  }
  // Says what an encoding's biases are: with values BUCKETS it is neither
  // needed nor a part of the identity.
  Field& OfBias() {
    is_of_bias_ = true;
    return *this;
  }
  // Follows from others, a table's shape for instance.
  Field& NotInIdentity() {
    is_in_identity_ = false;
    return *this;
  }

  int number() const { return number_; }
  std::string_view name() const { return name_; }
  const Member& member() const { return member_; }
  bool is_idle() const { return is_idle_; }
  bool is_of_bias() const { return is_of_bias_; }
  const std::optional<int64_t>& default_value() const { return default_; }

  // "path.name"; the name alone where the path is empty.
  std::string PathIn(std::string_view path) const;
  // INVALID_ARGUMENT, the message beginning with PathIn(path). `defaults` is
  // the same field of a spec that is all defaults; a number that is required
  // has a default that is not allowed.
  absl::Status Check(std::string_view path, const Field& defaults) const;
  // Writes what is not that of `defaults`.
  void WriteIdentity(const Field& defaults, CanonicalWriter& writer) const;
  bool is_in_identity() const { return is_in_identity_; }

 private:
  enum class Bound : uint8_t { kNone, kClosed, kOpen, kFinite };

  template <typename T>
  static Member MemberOf(T& member);

  // Nothing where it was not given.
  std::optional<std::string> Given() const;
  bool Allows(double number) const;
  bool Allows(int64_t number) const;
  std::string Wanted() const;
  absl::Status NotSet(const std::string& field) const;
  template <typename Number>
  absl::Status CheckNumber(const std::string& field, Number number) const;
  template <typename Number>
  absl::Status CheckNumbers(const std::string& field,
                            const std::vector<Number>& numbers) const;

  int number_;
  std::string_view name_;
  Member member_;
  Bound bound_ = Bound::kNone;
  double least_ = 0;
  double most_ = 0;
  bool is_even_ = false;
  bool is_required_ = false;
  bool is_idle_ = false;
  bool is_of_bias_ = false;
  bool is_in_identity_ = true;
  std::optional<int64_t> default_;
  int64_t absent_ = 0;
  std::string reason_;
  std::string bound_reason_;
};

// Sets num_heads, if it is not set, to the length of an axis of a table of two
// axes, if there is one.
inline void DeriveNumHeads(const std::optional<Table>& table, size_t axis,
                           int64_t& num_heads) {
  if (num_heads != 0 || !table.has_value() || table->shape().size() != 2) {
    return;
  }
  num_heads = table->shape()[axis];
}

// The fields of a message that has no list of its own: a range, positions.
FieldList FieldsOf(Range& range);
FieldList FieldsOf(std::vector<int64_t>& positions);
template <typename Message>
FieldList FieldsOf(Message& message) {
  return message.Fields();
}

// Checks each field by itself. `path` is the spec's name; `defaults` are those
// of a spec that is all defaults; `buckets`, whether values BUCKETS are asked
// for.
//
// INVALID_ARGUMENT  a message that begins with a field's path and ": "
absl::Status CheckFields(std::string_view path, const FieldList& fields,
                         const FieldList& defaults, bool buckets);

// Writes what the fields say.
void WriteIdentity(const FieldList& fields, const FieldList& defaults,
                   bool buckets, CanonicalWriter& writer);

// "LOG or POWER", "A, B or C".
std::string JoinNames(absl::Span<const std::string_view> names);

template <typename T>
Field::Member Field::MemberOf(T& member) {
  using Enum = typename ValueIn<T>::Type;
  if constexpr (std::is_constructible_v<Member, T*>) {
    return &member;
  } else if constexpr (std::is_enum_v<Enum>) {
    return EnumMember{
        .names = kEnumNames<Enum>,
        .get =
            [&member] {
              if constexpr (requires { member.has_value(); }) {
                return member.has_value() ? static_cast<int>(*member) : 0;
              } else {
                return static_cast<int>(static_cast<Enum>(member));
              }
            },
        .set = [&member](int value) { member = static_cast<Enum>(value); },
        .is_given =
            [&member] {
              if constexpr (requires { member.has_value(); }) {
                return member.has_value();
              } else if constexpr (requires { member.is_given(); }) {
                return member.is_given();
              } else {
                return true;
              }
            }};
  } else if constexpr (requires { member.Fields(); }) {
    return MessageMember{.elements = [&member] {
      return std::vector<FieldList>{member.Fields()};
    }};
  } else if constexpr (requires { member.has_value(); }) {
    return MessageMember{.resize =
                             [&member](int64_t size) {
                               member.reset();
                               if (size > 0) member.emplace();
                             },
                         .elements =
                             [&member] {
                               std::vector<FieldList> elements;
                               if (member.has_value())
                                 elements.push_back(FieldsOf(*member));
                               return elements;
                             }};
  } else {
    return MessageMember{
        .resize = [&member](int64_t size) { member.resize(size); },
        .elements =
            [&member] {
              std::vector<FieldList> elements;
              for (auto& element : member)
                elements.push_back(FieldsOf(element));
              return elements;
            }};
  }
}

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_FIELD_H_
