// SPDX-License-Identifier: Apache-2.0
// The definition of KERPLE's kernels, over real numbers.
#include "core/encoding/bias/kerple_reference.h"

#include "core/numerics/real.h"
#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

// Holds a distance times a double.
constexpr int kKernelPrecision = 128;

// Sets `value` to ln(1 + a d) or d^p, and returns whether that is exact.
//
// ln(1 + a d) is transcendental (Lindemann). d^p, for p a fraction with a power
// of two below, is an integer below 2^86 or irrational; MPFR knows.
bool SetKernel(const KerpleHead& head, int64_t distance, Real& value) {
  if (head.is_log) {
    Real product(head.a, kKernelPrecision);
    mpfr_mul_si(product.get(), product.get(), distance, MPFR_RNDN);
    mpfr_log1p(value.get(), product.get(), MPFR_RNDN);
    return false;
  }
  const Real power(head.p, kKernelPrecision);
  Real base(kKernelPrecision);
  mpfr_set_si(base.get(), distance, MPFR_RNDN);
  return mpfr_pow(value.get(), base.get(), power.get(), MPFR_RNDN) == 0;
}

}  // namespace

void ReferenceKerple(const KerpleHead& head, int64_t distance,
                     const NumberFormat& format, std::byte* out) {
  if (distance == 0) return RoundDouble(0, format.type, out);
  const RealCacheScope cache_scope;
  RoundByRefining(
      [&](Real& value, Real& bound) {
        const bool exact = SetKernel(head, distance, value);
        mpfr_mul_d(value.get(), value.get(), head.weight(), MPFR_RNDN);
        mpfr_mul_d(value.get(), value.get(), format.scale, MPFR_RNDN);
        // An integer's products are exact too. Else an irrational number, no
        // tie, was rounded three times.
        if (exact) {
          mpfr_set_zero(bound.get(), 0);
        } else {
          SetRoundingBound(value, 2, bound);
        }
      },
      format.type, out);
}

}  // namespace attnbias
