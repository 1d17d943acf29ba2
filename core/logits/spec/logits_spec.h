// SPDX-License-Identifier: Apache-2.0
// What positional logits can be asked for, as plain values. Field meanings,
// units and ranges are those of proto/attnbias/v1/logits.proto; nothing here is
// validated yet.
#ifndef ATTNBIAS_CORE_LOGITS_SPEC_LOGITS_SPEC_H_
#define ATTNBIAS_CORE_LOGITS_SPEC_LOGITS_SPEC_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/encoding/spec/any_spec.h"
#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"
#include "core/encoding/spec/tensor_spec.h"
#include "core/tensor/data_type.h"
#include "core/tensor/positions.h"

namespace attnbias {

enum class Direction : uint8_t {
  kLeftToRight = 1,
  kRightToLeft,
  kBidirectional
};
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<Direction> = {
    "LEFT_TO_RIGHT", "RIGHT_TO_LEFT", "BIDIRECTIONAL"};

struct LogitsSpec {
  AnySpec term;
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t query_length = 0;
  int64_t key_length = 0;
  // At most one of the two.
  std::optional<Alignment> alignment;
  std::optional<int64_t> query_offset;
  std::optional<Direction> direction;
  DataType data_type = DataType::kF32;
  DataType output_data_type = DataType::kF32;
  MaskFill fill;
  double scale = 1;
  std::optional<Table> query_bias;
  bool bias_alone = false;

  // All but the term and the fill.
  FieldList Fields() {
    return {Field(5, "num_heads", num_heads).In(1, kMaxNumHeads),
            Field(6, "head_dim", head_dim).In(1, kMaxDim),
            Field(7, "query_length", query_length).In(1, kMaxPosition),
            Field(8, "key_length", key_length).In(1, kMaxPosition),
            Field(9, "alignment", alignment),
            Field(10, "query_offset", query_offset),
            Field(11, "direction", direction).Required(),
            Field(12, "data_type", data_type),
            Field(13, "output_data_type", output_data_type),
            Field(16, "scale", scale),
            Field(17, "query_bias", query_bias),
            Field(18, "bias_alone", bias_alone)};
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_LOGITS_SPEC_LOGITS_SPEC_H_
