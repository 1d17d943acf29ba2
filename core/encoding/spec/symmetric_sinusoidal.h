// SPDX-License-Identifier: Apache-2.0
// Sinusoids of distances, blind to direction: what can be asked for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_SYMMETRIC_SINUSOIDAL_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_SYMMETRIC_SINUSOIDAL_H_

#include <cstdint>
#include <string_view>

#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"
#include "core/encoding/spec/sinusoidal.h"

namespace attnbias {

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

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_SYMMETRIC_SINUSOIDAL_H_
