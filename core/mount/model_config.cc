// SPDX-License-Identifier: Apache-2.0
#include "core/mount/model_config.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/invalid.h"
#include "core/mount/json_file.h"

namespace attnbias {
namespace {

using nlohmann::json;

// More than any model's, and few enough that sums of them do not overflow.
constexpr int64_t kMaxInteger = int64_t{1} << 31;

bool IsInteger(const json& value) {
  return value.is_number_integer() &&
         std::abs(value.get<double>()) <= kMaxInteger;
}

bool IsSide(const json& value) {
  return IsInteger(value) && value.get<int64_t>() > 0;
}

}  // namespace

std::string ModelConfig::String(const char* field, std::string_view otherwise) {
  const json& value = Find(field);
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_null()) Refuse(field, Excerpt(value), "a string");
  return std::string(otherwise);
}

int64_t ModelConfig::Integer(const char* field, int64_t otherwise) {
  const json& value = Find(field);
  if (IsInteger(value)) return value.get<int64_t>();
  if (!value.is_null()) {
    Refuse(field, Excerpt(value), "an integer in [-2^31, 2^31]");
  }
  return otherwise;
}

int64_t ModelConfig::Element(const char* field, size_t index,
                             int64_t otherwise) {
  const json& value = Find(field);
  if (value.is_null()) return otherwise;
  if (value.is_array() && index < value.size() && IsInteger(value[index])) {
    return value[index].get<int64_t>();
  }
  Refuse(field, Excerpt(value),
         absl::StrCat("a list with an integer at index ", index));
  return otherwise;
}

std::array<int64_t, 2> ModelConfig::Sides(const char* field,
                                          int64_t otherwise) {
  const json& value = Find(field);
  if (IsSide(value)) return {value.get<int64_t>(), value.get<int64_t>()};
  if (value.is_array() && value.size() == 2 && IsSide(value[0]) &&
      IsSide(value[1])) {
    return {value[0].get<int64_t>(), value[1].get<int64_t>()};
  }
  if (!value.is_null()) {
    Refuse(field, Excerpt(value), "a positive integer, or a list of two");
  }
  return {otherwise, otherwise};
}

void ModelConfig::Refuse(const char* field, std::string_view got,
                         std::string_view want) {
  if (!status_.ok()) return;
  status_ = Invalid(kFile, ": ", field, ": got ", std::string(got), ", want ",
                    std::string(want));
}

const json& ModelConfig::Find(const char* field) const {
  static const auto* const kAbsent = new json();
  const auto found = content_.find(field);
  return found == content_.end() ? *kAbsent : *found;
}

}  // namespace attnbias
