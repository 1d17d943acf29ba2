// SPDX-License-Identifier: Apache-2.0
// Conformer's relative positions: what can be asked for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_CONFORMER_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_CONFORMER_H_

#include <cstdint>
#include <string_view>

#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"

namespace attnbias {

struct ConformerSpec {
  static constexpr std::string_view kName = "conformer";
  int64_t dim = 0;
  double base = 10000;

  FieldList Fields() {
    return {Field(1, "dim", dim).In(2, kMaxDim).Even(),
            Field(2, "base", base).In(1, kMaxBase)};
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_CONFORMER_H_
