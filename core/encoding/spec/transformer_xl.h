// SPDX-License-Identifier: Apache-2.0
// Transformer-XL's relative positions: what can be asked for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_TRANSFORMER_XL_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_TRANSFORMER_XL_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"
#include "core/tensor/positions.h"

namespace attnbias {

struct TransformerXlSpec {
  static constexpr std::string_view kName = "transformer_xl";
  int64_t dim = 0;
  double base = 10000;
  std::optional<int64_t> clamp_len;

  FieldList Fields() {
    return {Field(1, "dim", dim).In(2, kMaxDim).Even(),
            Field(2, "base", base).In(1, kMaxBase),
            Field(3, "clamp_len", clamp_len).In(1, kMaxPosition)};
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_TRANSFORMER_XL_H_
