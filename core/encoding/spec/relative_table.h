// SPDX-License-Identifier: Apache-2.0
// A learned scalar or vector for every relative position: what can be asked
// for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_RELATIVE_TABLE_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_RELATIVE_TABLE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"

namespace attnbias {

enum class BeyondReach : uint8_t { kClip = 1, kRefuse };
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<BeyondReach> = {
    "CLIP", "REFUSE"};

struct LearnedRelativeSpec {
  static constexpr std::string_view kName = "learned_relative";
  std::optional<Table> table;
  int64_t num_heads = 0;
  std::optional<int64_t> left;
  std::optional<int64_t> right;
  bool symmetric = false;
  BeyondReach beyond = BeyondReach::kClip;

  // Heads that are not set are those of the table.
  void Derive() { DeriveNumHeads(table, 1, num_heads); }

  FieldList Fields() {
    return {Field(1, "table", table).OfBias(),
            Field(2, "num_heads", num_heads).In(1, kMaxNumHeads).OfBias(),
            Field(3, "left", left)
                .In(0, kMaxReach)
                .Required(!symmetric)
                .Idle(symmetric, "with symmetric, right is both sides'"),
            Field(4, "right", right).In(0, kMaxReach).Required(),
            Field(5, "symmetric", symmetric),
            Field(6, "beyond", beyond)};
  }
};

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

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_RELATIVE_TABLE_H_
