// SPDX-License-Identifier: Apache-2.0
// How far a positional logit may be from the real number it stands for.
#ifndef ATTNBIAS_CORE_LOGITS_ERROR_BOUND_H_
#define ATTNBIAS_CORE_LOGITS_ERROR_BOUND_H_

#include <cstdint>

#include "core/tensor/data_type.h"

namespace attnbias {

// `magnitude` times n u / (1 - n u). Here u is half an ulp of 1 in the type
// that was computed in, and n is the number of roundings on the longest way
// from an input to the result. The magnitude is the same sum of products, with
// every factor made positive. Holds in whatever order a BLAS adds, without
// underflow. The one rounding to the output type comes on top.
inline double LogitsErrorBound(DataType work_type, int64_t roundings,
                               double magnitude) {
  const double u = work_type == DataType::kF64 ? 0x1p-53 : 0x1p-24;
  const double nu = static_cast<double>(roundings) * u;
  return nu / (1 - nu) * magnitude;
}

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_LOGITS_ERROR_BOUND_H_
