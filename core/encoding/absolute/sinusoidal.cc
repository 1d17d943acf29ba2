// SPDX-License-Identifier: Apache-2.0
// Sinusoidal absolute positions (Vaswani et al. 2017) as an encoding.
#include "core/encoding/spec/sinusoidal.h"

#include "core/encoding/make_encoding.h"
#include "core/encoding/sinusoid/sinusoidal_evaluator.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

absl::StatusOr<Encoding> DescribeSinusoidal(const SinusoidalSpec& spec) {
  return Encoding{
      .width = spec.dim,
      .has_columns = true,
      .domain = kAllPositions,
      .evaluator_bytes = SinusoidsBytes(SinusoidColumns(spec)),
      .prepare = [spec](const NumberFormat& format, const KernelSet& kernels) {
        return PrepareSinusoids(spec, format, kernels);
      }};
}

const EncodingRegistration kSinusoidal(&DescribeSinusoidal);

}  // namespace
}  // namespace attnbias
