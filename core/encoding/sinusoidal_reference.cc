// SPDX-License-Identifier: Apache-2.0
// The definition of sinusoidal positions, over real numbers.
#include <algorithm>

#include "core/encoding/sinusoidal.h"
#include "core/numerics/real.h"
#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

// Frequency i is first * ratio^(-i numerator / denominator).
struct Progression {
  double first = 1;
  double ratio_over = 1;
  double ratio_under = 1;
  int64_t numerator = 1;
  int64_t denominator = 1;
};

Progression ProgressionOf(const SinusoidalSpec& spec) {
  if (spec.layout != SinusoidalLayout::kTensor2Tensor) {
    return {.ratio_over = spec.base, .numerator = 2, .denominator = spec.dim};
  }
  return {.first = spec.min_timescale,
          .ratio_over = spec.max_timescale,
          .ratio_under = spec.min_timescale,
          .denominator = std::max<int64_t>(spec.dim / 2 - 1, 1)};
}

// ratio^(-steps numerator / denominator). With 2^-p for the precision of
// `power`, the exponent's rounding costs |ln(power)| 2^-p < 56 x 2^-p, those of
// ratio and power 2^-p each.
void SetPower(const Progression& progression, int64_t steps, Real& power) {
  const int precision = static_cast<int>(mpfr_get_prec(power.get()));
  Real exponent(precision);
  mpfr_set_si(exponent.get(), -steps * progression.numerator, MPFR_RNDN);
  mpfr_div_si(exponent.get(), exponent.get(), progression.denominator,
              MPFR_RNDN);
  mpfr_set_d(power.get(), progression.ratio_over, MPFR_RNDN);
  mpfr_div_d(power.get(), power.get(), progression.ratio_under, MPFR_RNDN);
  mpfr_pow(power.get(), power.get(), exponent.get(), MPFR_RNDN);
}

// Sets `value` to the sine or cosine, `bound` to its error's.
void Evaluate(const Progression& progression,
              const SinusoidColumns::Place& place,
              const SinusoidElement& element, Real& value, Real& bound) {
  const auto precision = mpfr_get_prec(value.get());
  Real angle(static_cast<int>(precision));
  SetPower(progression, place.frequency, angle);
  mpfr_mul_d(angle.get(), angle.get(), progression.first, MPFR_RNDN);
  mpfr_mul_si(angle.get(), angle.get(), element.position, MPFR_RNDN);
  if (place.kind == SinusoidColumns::Kind::kSine) {
    mpfr_sin(value.get(), angle.get(), MPFR_RNDN);
  } else {
    mpfr_cos(value.get(), angle.get(), MPFR_RNDN);
  }
  mpfr_mul_d(value.get(), value.get(), element.scale, MPFR_RNDN);
  // The angle is within 60 x 2^-p, and neither function is steeper than 1.
  mpfr_abs(bound.get(), angle.get(), MPFR_RNDU);
  mpfr_mul_d(bound.get(), bound.get(), element.scale, MPFR_RNDA);
  mpfr_abs(bound.get(), bound.get(), MPFR_RNDU);
  mpfr_mul_2si(bound.get(), bound.get(), 6 - precision, MPFR_RNDU);
  Real rounding(static_cast<int>(precision));
  mpfr_abs(rounding.get(), value.get(), MPFR_RNDU);
  mpfr_mul_2si(rounding.get(), rounding.get(), 1 - precision, MPFR_RNDU);
  mpfr_add(bound.get(), bound.get(), rounding.get(), MPFR_RNDU);
}

}  // namespace

SinusoidColumns::SinusoidColumns(const SinusoidalSpec& spec)
    : width(spec.dim),
      sines(spec.dim - spec.dim / 2),
      cosines(spec.dim / 2),
      pair_stride(1),
      cos_offset(sines) {
  if (spec.layout == SinusoidalLayout::kInterleaved) {
    pair_stride = 2;
    cos_offset = 1;
  } else if (spec.layout == SinusoidalLayout::kTensor2Tensor) {
    sines = cosines;
    cos_offset = sines;
  }
}

SinusoidColumns::Place SinusoidColumns::PlaceOf(int64_t column) const {
  if (pair_stride == 2) {
    return {column / 2, column % 2 == 0 ? Kind::kSine : Kind::kCosine};
  }
  if (column < sines) return {column, Kind::kSine};
  if (column < sines + cosines) return {column - sines, Kind::kCosine};
  return {0, Kind::kZero};
}

std::vector<SinusoidFrequency> SinusoidFrequencies(const SinusoidalSpec& spec) {
  constexpr int kPrecision = 384;
  const RealCacheScope cache_scope;
  const Progression progression = ProgressionOf(spec);
  Real ratio(kPrecision);
  SetPower(progression, 1, ratio);
  Real frequency(kPrecision);
  mpfr_set_d(frequency.get(), progression.first, MPFR_RNDN);
  Real radians_per_turn(kPrecision);
  mpfr_const_pi(radians_per_turn.get(), MPFR_RNDN);
  mpfr_mul_2ui(radians_per_turn.get(), radians_per_turn.get(), 1, MPFR_RNDN);
  Real turns(kPrecision);
  std::vector<SinusoidFrequency> frequencies(SinusoidColumns(spec).sines);
  for (SinusoidFrequency& each : frequencies) {
    mpfr_div(turns.get(), frequency.get(), radians_per_turn.get(), MPFR_RNDN);
    each.turns_per_position = FractionOf(turns);
    each.radians_per_position = mpfr_get_d(frequency.get(), MPFR_RNDN);
    mpfr_mul(frequency.get(), frequency.get(), ratio.get(), MPFR_RNDN);
  }
  return frequencies;
}

void ReferenceSinusoidal(const SinusoidalSpec& spec,
                         const SinusoidElement& element, DataType type,
                         std::byte* out) {
  using Kind = SinusoidColumns::Kind;
  const SinusoidColumns::Place place =
      SinusoidColumns(spec).PlaceOf(element.column);
  // The only exact values. All others are transcendental (Lindemann): never a
  // tie, so that the loop ends.
  if (place.kind == Kind::kZero || element.position == 0) {
    const double exact = place.kind == Kind::kCosine ? element.scale : 0;
    return RoundDouble(exact, type, out);
  }
  const RealCacheScope cache_scope;
  const Progression progression = ProgressionOf(spec);
  for (int precision = 192;; precision *= 2) {
    Real value(precision);
    Real bound(precision);
    Evaluate(progression, place, element, value, bound);
    if (TryRound(value, bound, type, out)) return;
  }
}

}  // namespace attnbias
