// SPDX-License-Identifier: Apache-2.0
// Sandwich: what can be asked for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_SANDWICH_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_SANDWICH_H_

#include <cstdint>
#include <string_view>

#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"

namespace attnbias {

struct SandwichSpec {
  static constexpr std::string_view kName = "sandwich";
  int64_t num_heads = 0;
  int64_t dim = 128;
  double base = 10000;

  FieldList Fields() {
    return {Field(1, "num_heads", num_heads).In(1, kMaxNumHeads),
            Field(2, "dim", dim).In(2, kMaxDim).Even(),
            Field(3, "base", base).In(1, kMaxBase)};
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_SANDWICH_H_
