// SPDX-License-Identifier: Apache-2.0
// The definition of KERPLE's kernels, over real numbers.
#include "core/encoding/kerple.h"
#include "core/numerics/real.h"
#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

// Holds a distance squared times two doubles, and a distance times one.
constexpr int kExactPrecision = 256;

// Sets `value` to ln(1 + a d) or d^p, and returns whether that is exact.
//
// ln(1 + a d) is transcendental (Lindemann). d^p, for p a fraction with a power
// of two below, is an integer below 2^86 or irrational; MPFR knows.
bool SetKernel(const KerpleHead& head, int64_t distance, Real& value) {
  if (head.kernel == KerpleKernel::kLog) {
    Real product(kExactPrecision);
    mpfr_set_d(product.get(), head.a, MPFR_RNDN);
    mpfr_mul_si(product.get(), product.get(), distance, MPFR_RNDN);
    mpfr_log1p(value.get(), product.get(), MPFR_RNDN);
    return false;
  }
  Real power(kExactPrecision);
  Real base(kExactPrecision);
  mpfr_set_d(power.get(), head.p, MPFR_RNDN);
  mpfr_set_si(base.get(), distance, MPFR_RNDN);
  return mpfr_pow(value.get(), base.get(), power.get(), MPFR_RNDN) == 0;
}

}  // namespace

void ReferenceKerple(const KerpleHead& head, int64_t distance, DataType type,
                     std::byte* out) {
  if (distance == 0) return RoundDouble(0, type, out);
  const RealCacheScope cache_scope;
  const double weight = head.kernel == KerpleKernel::kLog ? head.p : head.a;
  for (int precision = kExactPrecision;; precision *= 2) {
    Real value(precision);
    const bool exact = SetKernel(head, distance, value);
    mpfr_mul_d(value.get(), value.get(), -weight, MPFR_RNDN);
    mpfr_mul_d(value.get(), value.get(), head.scale, MPFR_RNDN);
    if (exact) return RoundReal(value, type, out);
    // An irrational number is no tie, so that the loop ends. Three roundings.
    Real bound(precision);
    mpfr_abs(bound.get(), value.get(), MPFR_RNDU);
    mpfr_mul_2si(bound.get(), bound.get(), 2 - precision, MPFR_RNDU);
    if (TryRound(value, bound, type, out)) return;
  }
}

}  // namespace attnbias
