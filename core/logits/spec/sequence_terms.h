// SPDX-License-Identifier: Apache-2.0
// Terms of logits over a sequence: what can be asked for.
#ifndef ATTNBIAS_CORE_LOGITS_SPEC_SEQUENCE_TERMS_H_
#define ATTNBIAS_CORE_LOGITS_SPEC_SEQUENCE_TERMS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/encoding/spec/field.h"
#include "core/encoding/spec/relative_table.h"
#include "core/encoding/spec/sinusoidal.h"
#include "core/tensor/positions.h"

namespace attnbias {

struct RelativeTableSpec {
  std::optional<Table> table;
  std::optional<int64_t> left;
  std::optional<int64_t> right;
  RelativeSign sign = RelativeSign::kKeyMinusQuery;

  FieldList Fields() {
    return {Field(1, "table", table).Required(),
            Field(2, "left", left).In(0, kMaxPosition).Required(),
            Field(3, "right", right).In(0, kMaxPosition).Required(),
            Field(4, "sign", sign)};
  }
};

struct ShawKeysSpec : RelativeTableSpec {
  static constexpr std::string_view kName = "shaw_keys";
};

struct ShawValuesSpec : RelativeTableSpec {
  static constexpr std::string_view kName = "shaw_values";
};

struct SinusoidalDistancesSpec {
  static constexpr std::string_view kName = "sinusoidal_distances";
  SinusoidalSpec sinusoidal;
  std::optional<Table> projection;
  std::optional<int64_t> clamp_len;
  bool symmetric = false;

  FieldList Fields() {
    return {Field(1, "sinusoidal", sinusoidal),
            Field(2, "projection", projection),
            Field(3, "clamp_len", clamp_len).In(1, kMaxPosition),
            Field(4, "symmetric", symmetric)};
  }
};

struct AbsoluteKeysSpec {
  static constexpr std::string_view kName = "absolute_keys";
  std::optional<Table> positions;
  std::optional<Table> projection;

  FieldList Fields() {
    return {Field(1, "positions", positions).Required(),
            Field(2, "projection", projection)};
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_LOGITS_SPEC_SEQUENCE_TERMS_H_
