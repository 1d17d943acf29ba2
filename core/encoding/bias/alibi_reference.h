// SPDX-License-Identifier: Apache-2.0
// Attention with linear biases: the slope of a head, what it is multiplied
// with, and the definition of every element.
//
// An element is one real product, slope x scale x distance, rounded once. Where
// the distance is 0 it is +0, as the real number 0 rounds, although peers that
// multiply by a negative slope may have -0 there.
#ifndef ATTNBIAS_CORE_ENCODING_BIAS_ALIBI_REFERENCE_H_
#define ATTNBIAS_CORE_ENCODING_BIAS_ALIBI_REFERENCE_H_

#include <cstddef>
#include <cstdint>

#include "attnbias/v1/encodings.pb.h"
#include "core/encoding/evaluator.h"
#include "core/numerics/real.h"

namespace attnbias {

// What a slope is multiplied with at a coordinate of the variant's structure:
// key - query for TOEPLITZ, the key counted from its anchor for KEY_ROW.
int64_t AlibiDistance(v1::AlibiVariant variant, int64_t coordinate);

// A slope, to the precision asked for.
struct AlibiSlope {
  Real value;
  // Else within one rounding of it.
  bool is_exact;
};

AlibiSlope AlibiSlopeOf(const v1::Alibi& spec, int64_t head,
                        int precision_bits);

// Writes one element of a valid spec: the definition, computed with ever more
// bits until they decide the rounding.
void ReferenceAlibi(const v1::Alibi& spec, int64_t head, int64_t coordinate,
                    const NumberFormat& format, std::byte* out);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_BIAS_ALIBI_REFERENCE_H_
