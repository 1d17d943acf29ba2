// SPDX-License-Identifier: Apache-2.0
// KERPLE's two kernels: the definition of every element.
//
// An element is one real number, rounded once. At distance 0 it is +0.
#ifndef ATTNBIAS_CORE_ENCODING_BIAS_KERPLE_REFERENCE_H_
#define ATTNBIAS_CORE_ENCODING_BIAS_KERPLE_REFERENCE_H_

#include <cstddef>
#include <cstdint>

#include "core/encoding/spec/kerple.h"
#include "core/tensor/data_type.h"

namespace attnbias {

// The parameters of one head.
struct KerpleHead {
  KerpleKernel kernel = KerpleKernel::kLog;
  double p = 0;
  double a = 0;
  double scale = 1;
};

// Writes the element at a distance as `type`: the definition, computed with
// ever more bits until they decide the rounding.
void ReferenceKerple(const KerpleHead& head, int64_t distance, DataType type,
                     std::byte* out);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_BIAS_KERPLE_REFERENCE_H_
