// SPDX-License-Identifier: Apache-2.0
// Sines and cosines of angles that frameworks round to F32: a = fl32(p inv).
#ifndef ATTNBIAS_CORE_ENCODING_SINUSOID_FLOAT32_ANGLES_H_
#define ATTNBIAS_CORE_ENCODING_SINUSOID_FLOAT32_ANGLES_H_

#include <vector>

#include "core/encoding/evaluator.h"
#include "core/encoding/sinusoid/sinusoid.h"
#include "core/tensor/data_type.h"

namespace attnbias {

// Rows [sines | cosines], each element scale x sine or cosine of its angle,
// rounded once. Frequencies have magnitudes in
// [2^-126, 2^64].
EvaluatorPtr PrepareFloat32Angles(std::vector<float> inverse_frequencies,
                                  RealToAnyPrecision scale, DataType type);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SINUSOID_FLOAT32_ANGLES_H_
