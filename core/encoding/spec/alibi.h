// SPDX-License-Identifier: Apache-2.0
// Attention with linear biases: what can be asked for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_ALIBI_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_ALIBI_H_

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"

namespace attnbias {

enum class AlibiVariant : uint8_t {
  kSymmetric = 1,
  kCausal,
  kKeyFromStart,
  kKeyFromEnd
};
template <>
inline constexpr std::array<std::string_view, 4> kEnumNames<AlibiVariant> = {
    "SYMMETRIC", "CAUSAL", "KEY_FROM_START", "KEY_FROM_END"};

struct AlibiSpec {
  static constexpr std::string_view kName = "alibi";
  int64_t num_heads = 0;
  Defaulted<double> alibi_bias_max = DefaultsTo(8.0);
  std::vector<double> slopes;
  AlibiVariant variant = AlibiVariant::kSymmetric;

  // Heads that are not set are those of the slopes.
  void Derive() {
    if (num_heads == 0) num_heads = static_cast<int64_t>(slopes.size());
  }

  FieldList Fields() {
    constexpr double kMaxBiasMax = 1024;
    return {Field(1, "num_heads", num_heads).In(1, kMaxNumHeads),
            Field(2, "alibi_bias_max", alibi_bias_max)
                .Above(0, kMaxBiasMax)
                .Idle(!slopes.empty(), "slopes are given"),
            Field(3, "slopes", slopes).Finite(), Field(4, "variant", variant)};
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_ALIBI_H_
