// SPDX-License-Identifier: Apache-2.0
// Dynamic position bias: what can be asked for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_DYNAMIC_POSITION_BIAS_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_DYNAMIC_POSITION_BIAS_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"

namespace attnbias {

struct PositionMlpLayer {
  std::optional<Table> weight;
  std::optional<Table> bias;
  std::optional<Table> norm_weight;
  std::optional<Table> norm_bias;

  FieldList Fields() {
    return {Field(1, "weight", weight), Field(2, "bias", bias),
            Field(3, "norm_weight", norm_weight),
            Field(4, "norm_bias", norm_bias)};
  }
};

struct DynamicPositionBiasSpec {
  static constexpr std::string_view kName = "dynamic_position_bias";
  static constexpr size_t kMaxLayers = 64;
  int64_t num_heads = 0;
  bool log_distance = false;
  std::vector<PositionMlpLayer> layers;

  // Heads that are not set are those of the last layer.
  void Derive() {
    if (layers.empty()) return;
    DeriveNumHeads(layers.back().weight, 0, num_heads);
  }

  FieldList Fields() {
    return {Field(1, "num_heads", num_heads).In(1, kMaxNumHeads),
            Field(2, "log_distance", log_distance),
            Field(3, "layers", layers).AtMost(kMaxLayers)};
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_DYNAMIC_POSITION_BIAS_H_
