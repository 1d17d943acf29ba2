// SPDX-License-Identifier: Apache-2.0
#include "core/numerics/real.h"

#include <algorithm>
#include <cstring>

#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

struct FormatLimits {
  int precision;
  // The smallest subnormal is 2^smallest_exponent.
  int smallest_exponent;
};

FormatLimits LimitsOf(DataType type) {
  switch (type) {
    case DataType::kF32:
      return {24, -149};
    case DataType::kF16:
      return {11, -24};
    case DataType::kBF16:
      return {8, -133};
    default:
      return {53, -1074};
  }
}

// Zero or the smallest subnormal, for a magnitude below the latter.
double RoundBelowSmallest(mpfr_srcptr value, int smallest_exponent) {
  const bool up = mpfr_cmpabs_ui(value, 0) != 0 &&
                  mpfr_get_exp(value) == smallest_exponent &&
                  mpfr_min_prec(value) > 1;
  const double magnitude = up ? std::ldexp(1.0, smallest_exponent) : 0.0;
  return mpfr_signbit(value) != 0 ? -magnitude : magnitude;
}

}  // namespace

void RoundReal(const Real& value, DataType type, std::byte* out) {
  const FormatLimits limits = LimitsOf(type);
  if (mpfr_regular_p(value.get()) == 0) {
    return RoundDouble(mpfr_get_d(value.get(), MPFR_RNDN), type, out);
  }
  // MPFR's exponent e means a magnitude in [2^(e-1), 2^e).
  const int64_t bits_above_smallest =
      mpfr_get_exp(value.get()) - limits.smallest_exponent;
  if (bits_above_smallest < 1) {
    return RoundDouble(
        RoundBelowSmallest(value.get(), limits.smallest_exponent), type, out);
  }
  Real rounded(static_cast<int>(
      std::min<int64_t>(limits.precision, bits_above_smallest)));
  mpfr_set(rounded.get(), value.get(), MPFR_RNDN);
  RoundDouble(mpfr_get_d(rounded.get(), MPFR_RNDN), type, out);
}

bool TryRound(const Real& value, const Real& bound, DataType type,
              std::byte* out) {
  const mpfr_prec_t precision = mpfr_get_prec(value.get()) + 64;
  Real end(static_cast<int>(precision));
  std::byte low[8];
  std::byte high[8];
  mpfr_sub(end.get(), value.get(), bound.get(), MPFR_RNDD);
  RoundReal(end, type, low);
  mpfr_add(end.get(), value.get(), bound.get(), MPFR_RNDU);
  RoundReal(end, type, high);
  if (std::memcmp(low, high, SizeOf(type)) != 0) return false;
  std::memcpy(out, low, SizeOf(type));
  return true;
}

void RoundByRefining(absl::FunctionRef<void(Real& value, Real& bound)> evaluate,
                     DataType type, std::byte* out) {
  constexpr int kFirstPrecision = 192;
  constexpr int kLastPrecision = 4096;
  for (int precision = kFirstPrecision;; precision *= 2) {
    Real value(precision);
    Real bound(precision);
    evaluate(value, bound);
    if (TryRound(value, bound, type, out)) return;
    if (precision < kLastPrecision) continue;
    mpfr_prec_round(value.get(), kLastPrecision / 2, MPFR_RNDN);
    return RoundReal(value, type, out);
  }
}

void SetRoundingBound(const Real& value, int log2_count, Real& bound) {
  mpfr_abs(bound.get(), value.get(), MPFR_RNDU);
  mpfr_mul_2si(bound.get(), bound.get(),
               log2_count - mpfr_get_prec(value.get()), MPFR_RNDU);
}

DoubleDouble ToDoubleDouble(const Real& value) {
  const double hi = mpfr_get_d(value.get(), MPFR_RNDN);
  Real rest(static_cast<int>(mpfr_get_prec(value.get())) + 64);
  mpfr_sub_d(rest.get(), value.get(), hi, MPFR_RNDN);
  return {hi, mpfr_get_d(rest.get(), MPFR_RNDN)};
}

}  // namespace attnbias
