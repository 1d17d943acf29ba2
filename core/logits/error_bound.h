// SPDX-License-Identifier: Apache-2.0
// How far a positional logit may be from the real number it stands for.
#ifndef ATTNBIAS_CORE_LOGITS_ERROR_BOUND_H_
#define ATTNBIAS_CORE_LOGITS_ERROR_BOUND_H_

#include <cstdint>

#include "core/tensor/data_type.h"

namespace attnbias {

// gamma_n = n u / (1 - n u) times `magnitude`, where u is half an ulp of 1 in
// the type that was computed in, n counts the roundings on the longest way from
// an input to the result, and the magnitude is the same sum of products with
// every factor made positive. Holds in whatever order a BLAS adds, barring
// underflow; the one rounding to the output type comes on top.
inline double LogitsErrorBound(DataType work_type, int64_t roundings,
                               double magnitude) {
  const double u = work_type == DataType::kF64 ? 0x1p-53 : 0x1p-24;
  const double nu = static_cast<double>(roundings) * u;
  return nu / (1 - nu) * magnitude;
}

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_LOGITS_ERROR_BOUND_H_
