// SPDX-License-Identifier: Apache-2.0
// Learned absolute positions: what can be asked for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_LEARNED_ABSOLUTE_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_LEARNED_ABSOLUTE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/encoding/spec/field.h"
#include "core/tensor/positions.h"

namespace attnbias {

enum class Interpolation : uint8_t { kNone = 1, kLinear, kLinearAlignCorners };
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<Interpolation> = {
    "NONE", "LINEAR", "LINEAR_ALIGN_CORNERS"};

struct LearnedAbsoluteSpec {
  static constexpr std::string_view kName = "learned_absolute";
  std::optional<Table> table;
  int64_t offset = 0;
  std::optional<int64_t> padding_idx;
  Interpolation interpolation = Interpolation::kNone;
  std::optional<int64_t> interpolated_length;

  FieldList Fields() {
    constexpr int64_t kMaxInterpolatedLength = int64_t{1} << 20;
    const bool interpolates = interpolation != Interpolation::kNone;
    return {Field(1, "table", table),
            Field(2, "offset", offset).In(-kMaxPosition, kMaxPosition),
            Field(3, "padding_idx", padding_idx)
                .Absent(-1)
                .Idle(interpolates, "interpolation leaves no padding row"),
            Field(4, "interpolation", interpolation),
            Field(5, "interpolated_length", interpolated_length)
                .In(1, kMaxInterpolatedLength)
                .Required(interpolates, "the rows after interpolation")
                .Idle(!interpolates, "there is no interpolation")};
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_LEARNED_ABSOLUTE_H_
