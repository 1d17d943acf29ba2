// SPDX-License-Identifier: Apache-2.0
// Sinusoids of relative positions, as four models have them: what can be asked
// for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_RELATIVE_SINUSOID_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_RELATIVE_SINUSOID_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"
#include "core/encoding/spec/sinusoidal.h"
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

enum class XlnetAttention : uint8_t { kBidirectional = 1, kUnidirectional };
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<XlnetAttention> = {
    "BIDIRECTIONAL", "UNIDIRECTIONAL"};

struct XlnetSpec {
  static constexpr std::string_view kName = "xlnet";
  int64_t dim = 0;
  double base = 10000;
  std::optional<int64_t> clamp_len;
  XlnetAttention attn_type = XlnetAttention::kBidirectional;

  FieldList Fields() {
    return {Field(1, "dim", dim).In(2, kMaxDim).Even(),
            Field(2, "base", base).In(1, kMaxBase),
            Field(3, "clamp_len", clamp_len).In(1, kMaxPosition),
            Field(4, "attn_type", attn_type)};
  }
};

struct ConformerSpec {
  static constexpr std::string_view kName = "conformer";
  int64_t dim = 0;
  double base = 10000;

  FieldList Fields() {
    return {Field(1, "dim", dim).In(2, kMaxDim).Even(),
            Field(2, "base", base).In(1, kMaxBase)};
  }
};

struct SymmetricSinusoidalSpec {
  static constexpr std::string_view kName = "symmetric_sinusoidal";
  int64_t dim = 0;
  double base = 10000;
  SinusoidalLayout layout = SinusoidalLayout::kInterleaved;

  FieldList Fields() {
    return {Field(1, "dim", dim).In(2, kMaxDim).Even(),
            Field(2, "base", base).In(1, kMaxBase), Field(3, "layout", layout)};
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_RELATIVE_SINUSOID_H_
