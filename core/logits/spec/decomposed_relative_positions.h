// SPDX-License-Identifier: Apache-2.0
// Decomposed relative positions in a grid: what can be asked for.
#ifndef ATTNBIAS_CORE_LOGITS_SPEC_DECOMPOSED_RELATIVE_POSITIONS_H_
#define ATTNBIAS_CORE_LOGITS_SPEC_DECOMPOSED_RELATIVE_POSITIONS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"

namespace attnbias {

struct DecomposedRelativePositionsSpec {
  static constexpr std::string_view kName = "decomposed_relative_positions";
  std::optional<Table> rel_pos_h;
  std::optional<Table> rel_pos_w;
  int64_t query_height = 0;
  int64_t query_width = 0;
  int64_t key_height = 0;
  int64_t key_width = 0;

  FieldList Fields() {
    return {Field(1, "rel_pos_h", rel_pos_h).Required(),
            Field(2, "rel_pos_w", rel_pos_w).Required(),
            Field(3, "query_height", query_height).In(1, kMaxWindowSide),
            Field(4, "query_width", query_width).In(1, kMaxWindowSide),
            Field(5, "key_height", key_height).In(1, kMaxWindowSide),
            Field(6, "key_width", key_width).In(1, kMaxWindowSide)};
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_LOGITS_SPEC_DECOMPOSED_RELATIVE_POSITIONS_H_
