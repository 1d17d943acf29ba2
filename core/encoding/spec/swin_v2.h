// SPDX-License-Identifier: Apache-2.0
// Swin-V2's continuous position bias: what can be asked for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_SWIN_V2_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_SWIN_V2_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"

namespace attnbias {

struct SwinV2Spec {
  static constexpr std::string_view kName = "swin_v2";
  int64_t window_height = 0;
  int64_t window_width = 0;
  int64_t num_heads = 0;
  // Absent: the window's own.
  std::optional<int64_t> pretrained_window_height;
  std::optional<int64_t> pretrained_window_width;
  std::optional<Table> hidden_weight;
  std::optional<Table> hidden_bias;
  std::optional<Table> output_weight;

  int64_t pretrained_height() const {
    return pretrained_window_height.value_or(window_height);
  }
  int64_t pretrained_width() const {
    return pretrained_window_width.value_or(window_width);
  }

  // Heads that are not set are those of the table.
  void Derive() { DeriveNumHeads(output_weight, 0, num_heads); }

  FieldList Fields() {
    // Coordinates are fractions of a side's length - 1, which must not be 0
    // where there are any but 0.
    const auto within = [](Field field, int64_t side) {
      return field.In(side == 1 ? 1 : 2, kMaxWindowSide,
                      absl::StrCat(" for a window of ", side));
    };
    return {
        Field(1, "window_height", window_height).In(1, kMaxWindowSide),
        Field(2, "window_width", window_width).In(1, kMaxWindowSide),
        Field(3, "num_heads", num_heads).In(1, kMaxNumHeads).NotInIdentity(),
        within(Field(4, "pretrained_window_height", pretrained_window_height),
               window_height)
            .Default(window_height),
        within(Field(5, "pretrained_window_width", pretrained_window_width),
               window_width)
            .Default(window_width),
        Field(6, "hidden_weight", hidden_weight),
        Field(7, "hidden_bias", hidden_bias),
        Field(8, "output_weight", output_weight)};
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_SWIN_V2_H_
