// SPDX-License-Identifier: Apache-2.0
// Sinusoidal absolute positions (Vaswani et al. 2017) as an encoding.
#include "core/base/status_macros.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/sinusoid/sinusoidal_evaluator.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

absl::StatusOr<Encoding> DescribeSinusoidal(const v1::Sinusoidal& spec,
                                            const Tables& /*tables*/) {
  const SinusoidTable table = SinusoidTableOf(spec);
  ATTNBIAS_RETURN_IF_ERROR(CheckTimescales("sinusoidal", table));
  return Encoding{
      .width = table.dim,
      .has_columns = true,
      .domain = kAllPositions,
      .evaluator_bytes = SinusoidsBytes(SinusoidColumns(table)),
      .prepare = [table](const NumberFormat& format, const KernelSet& kernels) {
        return PrepareSinusoids(table, format, kernels);
      }};
}

const EncodingRegistration kSinusoidal(v1::TensorSpec::kSinusoidalFieldNumber,
                                       &DescribeSinusoidal);

}  // namespace
}  // namespace attnbias
