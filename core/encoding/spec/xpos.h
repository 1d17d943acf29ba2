// SPDX-License-Identifier: Apache-2.0
// xPos: what can be asked for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_XPOS_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_XPOS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"
#include "core/encoding/spec/rotary.h"
#include "core/tensor/positions.h"

namespace attnbias {

struct XposSpec {
  static constexpr std::string_view kName = "xpos";
  int64_t dim = 0;
  double rope_theta = 10000;
  double scale_base = 512;
  double gamma = 0.4;
  std::optional<int64_t> sequence_length;
  RotaryLayout layout = RotaryLayout::kHalf;

  // Decays count from there.
  int64_t center() const { return *sequence_length / 2; }

  FieldList Fields() {
    constexpr double kMaxScaleBase = 1e9;
    constexpr double kMaxGamma = 1e6;
    return {Field(1, "dim", dim).In(2, kMaxDim).Even(),
            Field(2, "rope_theta", rope_theta).In(1, kMaxBase),
            Field(3, "scale_base", scale_base).In(1, kMaxScaleBase),
            Field(4, "gamma", gamma).Above(0, kMaxGamma),
            Field(5, "sequence_length", sequence_length)
                .In(1, kMaxPosition)
                .Required(),
            Field(6, "layout", layout)};
  }

  // Lengths with one center have one table.
  void WriteIdentity(bool buckets, CanonicalWriter& writer) const {
    XposSpec same = *this;
    same.sequence_length = center();
    XposSpec defaults;
    attnbias::WriteIdentity(same.Fields(), defaults.Fields(), buckets, writer);
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_XPOS_H_
