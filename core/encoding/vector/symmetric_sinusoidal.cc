// SPDX-License-Identifier: Apache-2.0
// A sinusoid of the distance between query and key, blind to direction.
#include "core/encoding/spec/symmetric_sinusoidal.h"

#include <memory>

#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "core/encoding/common/table_checks.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/vector/relative_sinusoid.h"

namespace attnbias {
namespace {

absl::StatusOr<Encoding> DescribeSymmetricSinusoidal(
    const SymmetricSinusoidalSpec& spec) {
  if (spec.layout == SinusoidalLayout::kTensor2Tensor) {
    return Invalid(
        "symmetric_sinusoidal.layout: got TENSOR2TENSOR, want INTERLEAVED or "
        "CONCATENATED");
  }
  return RelativeSinusoid(
      {.dim = spec.dim, .base = spec.base, .layout = spec.layout},
      {.symmetric = true});
}

const EncodingRegistration kSymmetricSinusoidal(&DescribeSymmetricSinusoidal);

}  // namespace
}  // namespace attnbias
