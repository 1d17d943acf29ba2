// SPDX-License-Identifier: Apache-2.0
// FIRE: what can be asked for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_FIRE_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_FIRE_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"
#include "core/tensor/positions.h"

namespace attnbias {

struct FireSpec {
  static constexpr std::string_view kName = "fire";
  int64_t num_heads = 0;
  double c = 0.1;
  double threshold = 512;
  double eps = 1e-6;
  std::optional<Table> hidden_weight;
  std::optional<Table> hidden_bias;
  std::optional<Table> output_weight;
  std::optional<Table> output_bias;

  // Heads that are not set are those of the table.
  void Derive() { DeriveNumHeads(output_weight, 0, num_heads); }

  FieldList Fields() {
    constexpr double kLeastFactor = 1e-30;
    constexpr double kMostFactor = 1e30;
    return {Field(1, "num_heads", num_heads).In(1, kMaxNumHeads),
            Field(2, "c", c).In(kLeastFactor, kMostFactor),
            Field(3, "threshold", threshold).In(kLeastFactor, kMaxPosition),
            Field(4, "eps", eps).In(0, 1),
            Field(5, "hidden_weight", hidden_weight),
            Field(6, "hidden_bias", hidden_bias),
            Field(7, "output_weight", output_weight),
            Field(8, "output_bias", output_bias)};
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_FIRE_H_
