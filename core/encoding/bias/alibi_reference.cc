// SPDX-License-Identifier: Apache-2.0
// The definition of attention with linear biases, over real numbers.
#include "core/encoding/bias/alibi_reference.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

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

int64_t AlibiDistance(v1::AlibiVariant variant, int64_t coordinate) {
  switch (variant) {
    case v1::ALIBI_VARIANT_SYMMETRIC:
      return -std::abs(coordinate);
    case v1::ALIBI_VARIANT_CAUSAL:
      return std::min<int64_t>(coordinate, 0);
    default:  // Counts keys from either end.
      return coordinate;
  }
}

AlibiSlope AlibiSlopeOf(const v1::Alibi& spec, int64_t head,
                        int precision_bits) {
  if (!spec.slopes().empty()) {
    return {Real(spec.slopes(static_cast<int>(head)), precision_bits), true};
  }
  // Exact: the numerator has 17 bits, the denominator is a power of two.
  const Exponent exponent = ExponentOf(spec.num_heads(), head);
  Real power(-spec.alibi_bias_max(), 128);
  mpfr_mul_si(power.get(), power.get(), exponent.numerator, MPFR_RNDN);
  mpfr_div_si(power.get(), power.get(), exponent.denominator, MPFR_RNDN);
  // A fractional power of two is irrational.
  AlibiSlope slope = {Real(precision_bits), mpfr_integer_p(power.get()) != 0};
  mpfr_exp2(slope.value.get(), power.get(), MPFR_RNDN);
  return slope;
}

void ReferenceAlibi(const v1::Alibi& spec, int64_t head, int64_t coordinate,
                    const NumberFormat& format, std::byte* out) {
  const int64_t distance = AlibiDistance(spec.variant(), coordinate);
  const bool is_flat =
      !spec.slopes().empty() && spec.slopes(static_cast<int>(head)) == 0;
  if (distance == 0 || is_flat) return RoundDouble(0, format.type, out);
  const RealCacheScope cache_scope;
  RoundByRefining(
      [&](Real& value, Real& bound) {
        const AlibiSlope slope = AlibiSlopeOf(spec, head, value.precision());
        mpfr_mul_d(value.get(), slope.value.get(), format.scale, MPFR_RNDN);
        mpfr_mul_si(value.get(), value.get(), distance, MPFR_RNDN);
        // A product of two doubles and a distance is exact. An irrational
        // slope was rounded too, and its products, which are not ties.
        if (slope.is_exact) {
          mpfr_set_zero(bound.get(), 0);
        } else {
          SetRoundingBound(value, 2, bound);
        }
      },
      format.type, out);
}

}  // namespace attnbias
