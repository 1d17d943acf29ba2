// SPDX-License-Identifier: Apache-2.0
#include "core/numerics/real.h"

#include <cstring>
#include <limits>

#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

// Scales outside these bounds would leave the range of double-doubles. Elements with such scales
// are scaled by MPFR, with more bits than elements have.
constexpr double kMinFactor = 0x1p-300;
constexpr double kMaxFactor = 0x1p300;
constexpr int kScaledPrecision = 192;

}  // namespace

Real TwoPi(int precision_bits) {
  Real pi(precision_bits);
  mpfr_const_pi(pi.get(), MPFR_RNDN);
  return pi * 2;
}

void RoundReal(const Real& value, DataType type, std::byte* out) {
  if (type == DataType::kF64) return RoundDouble(value.ToDouble(), type, out);
  // All reals between two neighboring doubles round to the same value in a narrower type.
  const double inner = mpfr_get_d(value.get(), MPFR_RNDZ);
  if (mpfr_cmp_d(value.get(), inner) == 0) return RoundDouble(inner, type, out);
  const double least = std::numeric_limits<double>::denorm_min();
  RoundSum({inner, std::copysign(least, inner)}, type, out);
}

bool TryRound(const Real& value, const Real& bound, DataType type, std::byte* out) {
  Real end(value.precision() + 64);
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

void RoundByRefining(absl::FunctionRef<void(Real& value, Real& bound)> evaluate, DataType type,
                     std::byte* out) {
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
  mpfr_mul_2si(bound.get(), bound.get(), log2_count - value.precision(), MPFR_RNDU);
}

DoubleDouble ToDoubleDouble(const Real& value) {
  const double hi = value.ToDouble();
  return {hi, (value - hi).ToDouble()};
}

ScaledRounding::ScaledRounding(const Real& scale, DataType type)
    : scale_(scale),
      factor_{scale.ToDouble(), 0},
      in_double_doubles_(std::fabs(factor_.hi) > kMinFactor && std::fabs(factor_.hi) < kMaxFactor),
      is_one_(mpfr_cmp_ui(scale.get(), 1) == 0),
      type_(type) {
  if (in_double_doubles_) factor_ = ToDoubleDouble(scale);
}

ScaledRounding::ScaledRounding(double scale, DataType type)
    : ScaledRounding(Real(scale, kScaledPrecision), type) {}

bool ScaledRounding::TryRound(DoubleDouble value, double error, std::byte* out) const {
  if (type_ == DataType::kF64 && is_one_) {
    double rounded;
    if (!TryRoundToDouble(value, error, &rounded)) return false;
    std::memcpy(out, &rounded, sizeof(rounded));
    return true;
  }
  if (in_double_doubles_) {
    // Doubling the error covers the error of the product itself.
    return attnbias::TryRound(value * factor_, 2 * error * std::fabs(factor_.hi), type_, out);
  }
  const Real scaled = (Real(value.hi, kScaledPrecision) + value.lo) * scale_;
  Real bound(kScaledPrecision);
  mpfr_mul_d(bound.get(), scale_.get(), 2 * error, MPFR_RNDA);
  mpfr_abs(bound.get(), bound.get(), MPFR_RNDU);
  return attnbias::TryRound(scaled, bound, type_, out);
}

}  // namespace attnbias
