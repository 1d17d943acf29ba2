// SPDX-License-Identifier: Apache-2.0
// Sandwich: the definition of every element, which is one real number, rounded
// once.
#ifndef ATTNBIAS_CORE_ENCODING_BIAS_SANDWICH_REFERENCE_H_
#define ATTNBIAS_CORE_ENCODING_BIAS_SANDWICH_REFERENCE_H_

#include <cstddef>
#include <cstdint>

#include "attnbias/v1/encodings.pb.h"
#include "core/encoding/evaluator.h"
#include "core/numerics/real.h"

namespace attnbias {

// Multiplies `value` by scale H / (8 (h + 1)), rounding three times; returns
// whether the last was exact, as the others are for a value of 64 bits held in
// 192.
bool MultiplyBySandwichFactor(const v1::Sandwich& spec, int64_t head,
                              double scale, Real& value);

// Writes one element of a valid spec: the definition, computed with ever more
// bits until they decide the rounding.
void ReferenceSandwich(const v1::Sandwich& spec, int64_t head, int64_t distance,
                       const NumberFormat& format, std::byte* out);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_BIAS_SANDWICH_REFERENCE_H_
