// SPDX-License-Identifier: Apache-2.0
// XLNet's relative positions (Yang et al. 2019): a sinusoid of the signed
// distance from query to key.
#include "core/encoding/spec/xlnet.h"

#include <memory>

#include "core/base/status_macros.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/vector/relative_sinusoid.h"

namespace attnbias {
namespace {

absl::StatusOr<Encoding> DescribeXlnet(const XlnetSpec& spec) {
  return RelativeSinusoid(
      {.dim = spec.dim,
       .base = spec.base,
       .layout = SinusoidalLayout::kConcatenated},
      {.zero_right = spec.attn_type == XlnetAttention::kUnidirectional,
       .clamp_len = spec.clamp_len});
}

const EncodingRegistration kXlnet(&DescribeXlnet);

}  // namespace
}  // namespace attnbias
