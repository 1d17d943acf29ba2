// SPDX-License-Identifier: Apache-2.0
// Learned biases inside a window of an image, Swin's and BEiT's: what can be
// asked for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_SWIN_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_SWIN_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"

namespace attnbias {

// The fields are the same; a class token adds three rows to the table.
template <bool has_class_token>
struct WindowBiasSpec {
  static constexpr std::string_view kName = has_class_token ? "beit" : "swin";
  int64_t window_height = 0;
  int64_t window_width = 0;
  int64_t num_heads = 0;
  std::optional<Table> table;

  // Heads that are not set are those of the table.
  void Derive() { DeriveNumHeads(table, 1, num_heads); }

  FieldList Fields() {
    return {Field(1, "window_height", window_height).In(1, kMaxWindowSide),
            Field(2, "window_width", window_width).In(1, kMaxWindowSide),
            Field(3, "num_heads", num_heads)
                .In(1, kMaxNumHeads)
                .OfBias()
                .NotInIdentity(),
            Field(4, "table", table).OfBias()};
  }
};

using SwinSpec = WindowBiasSpec<false>;
using BeitSpec = WindowBiasSpec<true>;

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_SWIN_H_
