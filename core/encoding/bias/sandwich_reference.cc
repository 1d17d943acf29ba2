// SPDX-License-Identifier: Apache-2.0
// The definition of Sandwich, over real numbers.
#include "core/encoding/bias/sandwich_reference.h"

namespace attnbias {
namespace {

// Sets `sum` to the cosines' sum. Every angle is within 60 x 2^-p of itself,
// p being the precision, and every cosine and partial sum is rounded once:
// `bound` covers them all.
void SumCosines(const v1::Sandwich& spec, int64_t distance, Real& sum,
                Real& bound) {
  const int precision = sum.precision();
  const Real base(spec.base(), precision);
  Real angle(precision);
  mpfr_set_zero(sum.get(), 0);
  mpfr_set_zero(bound.get(), 0);
  for (int64_t k = 0; k < spec.dim() / 2; ++k) {
    mpfr_set_si(angle.get(), -2 * k, MPFR_RNDN);
    mpfr_div_si(angle.get(), angle.get(), spec.dim(), MPFR_RNDN);
    mpfr_pow(angle.get(), base.get(), angle.get(), MPFR_RNDN);
    mpfr_mul_si(angle.get(), angle.get(), distance, MPFR_RNDN);
    mpfr_add(bound.get(), bound.get(), angle.get(), MPFR_RNDU);
    mpfr_cos(angle.get(), angle.get(), MPFR_RNDN);
    mpfr_add(sum.get(), sum.get(), angle.get(), MPFR_RNDN);
  }
  mpfr_add_si(bound.get(), bound.get(), int64_t{spec.dim()} * spec.dim(),
              MPFR_RNDU);
  mpfr_mul_2si(bound.get(), bound.get(), 6 - precision, MPFR_RNDU);
}

}  // namespace

bool MultiplyBySandwichFactor(const v1::Sandwich& spec, int64_t head,
                              double scale, Real& value) {
  mpfr_mul_si(value.get(), value.get(), spec.num_heads(), MPFR_RNDN);
  mpfr_mul_d(value.get(), value.get(), scale, MPFR_RNDN);
  return mpfr_div_si(value.get(), value.get(), 8 * (head + 1), MPFR_RNDN) == 0;
}

void ReferenceSandwich(const v1::Sandwich& spec, int64_t head, int64_t distance,
                       const NumberFormat& format, std::byte* out) {
  const RealCacheScope cache_scope;
  RoundByRefining(
      [&](Real& value, Real& bound) {
        if (distance == 0) {
          mpfr_set_si(value.get(), spec.dim() / 2, MPFR_RNDN);
          mpfr_set_zero(bound.get(), 0);
        } else {
          SumCosines(spec, distance, value, bound);
        }
        const bool exact =
            MultiplyBySandwichFactor(spec, head, format.scale, value);
        // A quotient of integers and a double is not a tie unless it ends.
        if (distance == 0 && exact) return;
        // The cosines of algebraic angles, none of them 0, add up to a
        // transcendental number (Lindemann and Weierstrass): not a tie either.
        MultiplyBySandwichFactor(spec, head, format.scale, bound);
        mpfr_abs(bound.get(), bound.get(), MPFR_RNDU);
        mpfr_mul_2si(bound.get(), bound.get(), 1, MPFR_RNDU);
        Real rounding(bound.precision());
        SetRoundingBound(value, 3, rounding);
        mpfr_add(bound.get(), bound.get(), rounding.get(), MPFR_RNDU);
      },
      format.type, out);
}

}  // namespace attnbias
