// SPDX-License-Identifier: Apache-2.0
// Transformer-XL's R (Dai et al. 2019): a sinusoid of the distance back from
// query to key.
#include "core/encoding/spec/transformer_xl.h"

#include <memory>

#include "core/base/status_macros.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/vector/relative_sinusoid.h"

namespace attnbias {
namespace {

absl::StatusOr<Encoding> DescribeTransformerXl(const TransformerXlSpec& spec) {
  return RelativeSinusoid({.dim = spec.dim,
                           .base = spec.base,
                           .layout = SinusoidalLayout::kConcatenated},
                          {.zero_right = true, .clamp_len = spec.clamp_len});
}

const EncodingRegistration kTransformerXl(&DescribeTransformerXl);

}  // namespace
}  // namespace attnbias
