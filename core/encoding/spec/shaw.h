// SPDX-License-Identifier: Apache-2.0
// Relative position representations (Shaw et al.): what can be asked for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_SHAW_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_SHAW_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/encoding/spec/field.h"
#include "core/encoding/spec/learned_relative.h"
#include "core/encoding/spec/limits.h"

namespace attnbias {

enum class RelativeSign : uint8_t { kKeyMinusQuery = 1, kQueryMinusKey };
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<RelativeSign> = {
    "KEY_MINUS_QUERY", "QUERY_MINUS_KEY"};

struct ShawSpec {
  static constexpr std::string_view kName = "shaw";
  std::optional<Table> table;
  std::optional<int64_t> left;
  std::optional<int64_t> right;
  BeyondReach beyond = BeyondReach::kClip;
  RelativeSign sign = RelativeSign::kKeyMinusQuery;

  FieldList Fields() {
    return {Field(1, "table", table).OfBias(),
            Field(2, "left", left).In(0, kMaxReach).Required(),
            Field(3, "right", right).In(0, kMaxReach).Required(),
            Field(4, "beyond", beyond), Field(5, "sign", sign)};
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_SHAW_H_
