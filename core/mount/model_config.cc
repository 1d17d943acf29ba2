// SPDX-License-Identifier: Apache-2.0
#include "core/mount/model_config.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/mount/json_file.h"

namespace attnbias {
namespace {

using nlohmann::json;

// More than any model's, and few enough that products of two do not overflow.
constexpr int64_t kMaxInteger = int64_t{1} << 30;

bool IsInteger(const json& value) {
  return value.is_number_integer() &&
         std::abs(value.get<double>()) <= kMaxInteger;
}

bool IsSize(const json& value) {
  return IsInteger(value) && value.get<int64_t>() > 0;
}

// Returns the field whose value a default takes; empty for other defaults.
std::string FieldNamedBy(const json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  return text.starts_with('=') ? text.substr(1) : "";
}

}  // namespace

std::string ModelConfig::String(const char* field, std::string_view otherwise) {
  const auto [name, value] = Find(field);
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_null()) Refuse(name, Excerpt(value), "a string");
  return std::string(otherwise);
}

int64_t ModelConfig::Integer(const char* field) {
  const auto [name, value] = Find(field);
  if (IsInteger(value)) return value.get<int64_t>();
  Refuse(name, Excerpt(value), "an integer in [-2^30, 2^30]");
  return 1;
}

int64_t ModelConfig::Size(const char* field) {
  const auto [name, value] = Find(field);
  if (IsSize(value)) return value.get<int64_t>();
  Refuse(name, Excerpt(value), "an integer in [1, 2^30]");
  return 1;
}

int64_t ModelConfig::Element(const char* field, size_t index) {
  const auto [name, value] = Find(field);
  if (value.is_array() && index < value.size() && IsInteger(value[index])) {
    return value[index].get<int64_t>();
  }
  Refuse(name, Excerpt(value),
         absl::StrCat("a list with an integer at index ", index));
  return 1;
}

std::array<int64_t, 2> ModelConfig::Sides(const char* field) {
  const auto [name, value] = Find(field);
  if (IsSize(value)) return {value.get<int64_t>(), value.get<int64_t>()};
  if (value.is_array() && value.size() == 2 && IsSize(value[0]) &&
      IsSize(value[1])) {
    return {value[0].get<int64_t>(), value[1].get<int64_t>()};
  }
  Refuse(name, Excerpt(value), "a positive integer, or a list of two");
  return {1, 1};
}

std::string ModelConfig::TakeReads() {
  return absl::StrJoin(std::exchange(reads_, {}), ", ");
}

void ModelConfig::Refuse(std::string_view field, std::string_view got,
                         std::string_view want) {
  if (!status_.ok()) return;
  status_ = Invalid(kFile, ": ", std::string(field), ": got ", std::string(got),
                    ", want ", std::string(want));
}

ModelConfig::Found ModelConfig::Find(const char* field) {
  static const auto* const kAbsent = new json();
  for (std::string name = field;;) {
    const auto said = content_.find(name);
    const auto otherwise = defaults_.find(name);
    const std::string other =
        otherwise == defaults_.end() ? "" : FieldNamedBy(*otherwise);
    // A null is what is not set, where another field has the value then.
    if (said != content_.end() && (!said->is_null() || other.empty())) {
      reads_.push_back(absl::StrCat(name, " = ", Excerpt(*said)));
      return {name, *said};
    }
    if (otherwise == defaults_.end()) return {name, *kAbsent};
    if (other.empty()) {
      reads_.push_back(
          absl::StrCat(name, " = ", Excerpt(*otherwise), " by default"));
      return {name, *otherwise};
    }
    name = other;
  }
}

}  // namespace attnbias
