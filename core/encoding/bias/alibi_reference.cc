// SPDX-License-Identifier: Apache-2.0
// The definition of attention with linear biases, over real numbers.
#include "core/encoding/bias/alibi_reference.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "core/encoding/spec/alibi.h"
#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

// head's slope is 2^(-alibi_bias_max numerator / denominator).
struct Exponent {
  int64_t numerator;
  int64_t denominator;
};

Exponent ExponentOf(int64_t num_heads, int64_t head) {
  const auto below =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(num_heads)));
  if (head < below) return {head + 1, below};
  return {2 * (head - below) + 1, 2 * below};
}

}  // namespace

int64_t AlibiDistance(AlibiVariant variant, int64_t coordinate) {
  switch (variant) {
    case AlibiVariant::kSymmetric:
      return -std::abs(coordinate);
    case AlibiVariant::kCausal:
      return std::min<int64_t>(coordinate, 0);
    case AlibiVariant::kKeyFromStart:
    case AlibiVariant::kKeyFromEnd:
      break;
  }
  return coordinate;
}

AlibiSlope AlibiSlopeOf(const AlibiSpec& spec, int64_t head,
                        int precision_bits) {
  AlibiSlope slope = {Real(precision_bits), true};
  if (!spec.slopes.empty()) {
    mpfr_set_d(slope.value.get(), spec.slopes[head], MPFR_RNDN);
    return slope;
  }
  // Exact: the numerator has 17 bits, the denominator is a power of two.
  const Exponent exponent = ExponentOf(spec.num_heads, head);
  Real power(128);
  mpfr_set_d(power.get(), -spec.alibi_bias_max, MPFR_RNDN);
  mpfr_mul_si(power.get(), power.get(), exponent.numerator, MPFR_RNDN);
  mpfr_div_si(power.get(), power.get(), exponent.denominator, MPFR_RNDN);
  // A fractional power of two is irrational.
  slope.is_exact = mpfr_integer_p(power.get()) != 0;
  mpfr_exp2(slope.value.get(), power.get(), MPFR_RNDN);
  return slope;
}

void ReferenceAlibi(const AlibiSpec& spec, const AlibiElement& element,
                    DataType type, std::byte* out) {
  const int64_t distance = AlibiDistance(spec.variant, element.coordinate);
  const bool is_flat = !spec.slopes.empty() && spec.slopes[element.head] == 0;
  if (distance == 0 || is_flat) return RoundDouble(0, type, out);
  const RealCacheScope cache_scope;
  RoundByRefining(
      [&](Real& value, Real& bound) {
        const auto precision = static_cast<int>(mpfr_get_prec(value.get()));
        const AlibiSlope slope = AlibiSlopeOf(spec, element.head, precision);
        mpfr_mul_d(value.get(), slope.value.get(), element.scale, MPFR_RNDN);
        mpfr_mul_si(value.get(), value.get(), distance, MPFR_RNDN);
        // A product of two doubles and a distance is exact. An irrational
        // slope was rounded too, and its products, which are no tie.
        if (slope.is_exact) {
          mpfr_set_zero(bound.get(), 0);
        } else {
          SetRoundingBound(value, 2, bound);
        }
      },
      type, out);
}

}  // namespace attnbias
