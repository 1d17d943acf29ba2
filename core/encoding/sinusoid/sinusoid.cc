// SPDX-License-Identifier: Apache-2.0
// The definition of sinusoidal positions, over real numbers.
#include "core/encoding/sinusoid/sinusoid.h"

#include <algorithm>

#include "core/base/executor.h"
#include "core/base/invalid.h"
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

Progression ProgressionOf(const SinusoidTable& spec) {
  if (spec.layout != v1::SINUSOIDAL_LAYOUT_TENSOR2TENSOR) {
    return {.ratio_over = spec.base, .numerator = 2, .denominator = spec.dim};
  }
  return {.first = spec.min_timescale,
          .ratio_over = spec.max_timescale,
          .ratio_under = spec.min_timescale,
          .denominator = std::max<int64_t>(spec.dim / 2 - 1, 1)};
}

// Sets `first` to frequency 0 of stretched positions, by three roundings.
void SetFirst(const Progression& progression, const AxisStretch& stretch,
              Real& first) {
  mpfr_set_d(first.get(), stretch.length, MPFR_RNDN);
  mpfr_add_d(first.get(), first.get(), stretch.eps, MPFR_RNDN);
  mpfr_d_div(first.get(), stretch.factor, first.get(), MPFR_RNDN);
  mpfr_mul_d(first.get(), first.get(), progression.first, MPFR_RNDN);
}

// ratio^(-steps numerator / denominator). With 2^-p for the precision of
// `power`, the exponent's rounding costs |ln(power)| 2^-p < 56 x 2^-p, those of
// ratio and power 2^-p each.
void SetPower(const Progression& progression, int64_t steps, Real& power) {
  Real exponent(power.precision());
  mpfr_set_si(exponent.get(), -steps * progression.numerator, MPFR_RNDN);
  mpfr_div_si(exponent.get(), exponent.get(), progression.denominator,
              MPFR_RNDN);
  mpfr_set_d(power.get(), progression.ratio_over, MPFR_RNDN);
  mpfr_div_d(power.get(), power.get(), progression.ratio_under, MPFR_RNDN);
  mpfr_pow(power.get(), power.get(), exponent.get(), MPFR_RNDN);
}

// Sets `value` to scale x sine or cosine, `bound` to its error's.
void Evaluate(SinusoidColumns::Kind kind, const Real& angle, const Real& scale,
              Real& value, Real& bound) {
  const int precision = value.precision();
  if (kind == SinusoidColumns::Kind::kSine) {
    mpfr_sin(value.get(), angle.get(), MPFR_RNDN);
  } else {
    mpfr_cos(value.get(), angle.get(), MPFR_RNDN);
  }
  mpfr_mul(value.get(), value.get(), scale.get(), MPFR_RNDN);
  // The angle is within 65 x 2^-p, and neither function is steeper than 1.
  mpfr_mul(bound.get(), angle.get(), scale.get(), MPFR_RNDA);
  mpfr_abs(bound.get(), bound.get(), MPFR_RNDU);
  mpfr_mul_2si(bound.get(), bound.get(), 7 - precision, MPFR_RNDU);
  // The scale is within 64 x 2^-p.
  Real rounding(precision);
  SetRoundingBound(value, 7, rounding);
  mpfr_add(bound.get(), bound.get(), rounding.get(), MPFR_RNDU);
}

}  // namespace

SinusoidColumns::SinusoidColumns(const SinusoidTable& spec)
    : width(spec.dim),
      sines(spec.dim - spec.dim / 2),
      cosines(spec.dim / 2),
      pair_stride(1),
      cos_offset(sines) {
  if (spec.layout == v1::SINUSOIDAL_LAYOUT_INTERLEAVED) {
    pair_stride = 2;
    cos_offset = 1;
  } else if (spec.layout == v1::SINUSOIDAL_LAYOUT_TENSOR2TENSOR) {
    sines = cosines;
    cos_offset = sines;
  }
}

absl::Status CheckTimescales(absl::string_view encoding,
                             const SinusoidTable& table) {
  if (table.layout != v1::SINUSOIDAL_LAYOUT_TENSOR2TENSOR ||
      table.max_timescale >= table.min_timescale) {
    return absl::OkStatus();
  }
  return Invalid(encoding, ".max_timescale: got ", table.max_timescale,
                 ", want at least ", table.min_timescale, " (min_timescale)");
}

SinusoidColumns::Wave SinusoidColumns::WaveAt(int64_t column) const {
  if (pair_stride == 2) {
    return {column / 2, column % 2 == 0 ? Kind::kSine : Kind::kCosine};
  }
  if (column < sines) return {column, Kind::kSine};
  if (column < sines + cosines) return {column - sines, Kind::kCosine};
  return {0, Kind::kZero};
}

SinusoidFrequency FrequencyOf(const Real& radians_per_position) {
  Real turns(kSinusoidPrecision);
  mpfr_const_pi(turns.get(), MPFR_RNDN);
  mpfr_mul_2ui(turns.get(), turns.get(), 1, MPFR_RNDN);
  mpfr_div(turns.get(), radians_per_position.get(), turns.get(), MPFR_RNDN);
  return {FractionOf(turns), mpfr_get_d(radians_per_position.get(), MPFR_RNDN)};
}

SinusoidRows RowsOf(const SinusoidTable& spec, double scale,
                    const AxisStretch& stretch) {
  const RealCacheScope cache_scope;
  const Progression progression = ProgressionOf(spec);
  SinusoidRows rows = {
      .columns = SinusoidColumns(spec),
      .frequencies = {},
      .scale = Real(scale, kSinusoidPrecision),
      .reference = [spec, scale, stretch](int64_t position, int64_t column,
                                          DataType type, std::byte* out) {
        ReferenceSinusoidal(spec, position, column, {type, scale}, out,
                            stretch);
      }};
  rows.frequencies.reserve(rows.columns.sines);
  Real ratio(kSinusoidPrecision);
  SetPower(progression, 1, ratio);
  Real frequency(kSinusoidPrecision);
  SetFirst(progression, stretch, frequency);
  for (int64_t i = 0; i < rows.columns.sines; ++i) {
    // Rows that are not wanted are not looked at.
    (void)MakingScope::Continues();
    rows.frequencies.push_back(FrequencyOf(frequency));
    mpfr_mul(frequency.get(), frequency.get(), ratio.get(), MPFR_RNDN);
  }
  return rows;
}

void RoundSinusoid(const ExactSinusoid& sinusoid, DataType type,
                   std::byte* out) {
  using Kind = SinusoidColumns::Kind;
  const auto& [kind, position, frequency, scale] = sinusoid;
  if (kind == Kind::kZero || (position == 0 && kind == Kind::kSine)) {
    return RoundDouble(0, type, out);
  }
  const RealCacheScope cache_scope;
  if (position == 0) return RoundReal(scale(kSinusoidPrecision), type, out);
  // Sines and cosines of algebraic angles are transcendental (Lindemann): with
  // an algebraic scale they are not ties.
  RoundByRefining(
      [&](Real& value, Real& bound) {
        Real angle = sinusoid.frequency(value.precision());
        mpfr_mul_si(angle.get(), angle.get(), sinusoid.position, MPFR_RNDN);
        Evaluate(sinusoid.kind, angle, sinusoid.scale(value.precision()), value,
                 bound);
      },
      type, out);
}

void ReferenceSinusoidal(const SinusoidTable& spec, int64_t position,
                         int64_t column, const NumberFormat& format,
                         std::byte* out, const AxisStretch& stretch) {
  const SinusoidColumns::Wave wave = SinusoidColumns(spec).WaveAt(column);
  const auto frequency = [&](int precision) {
    const Progression progression = ProgressionOf(spec);
    Real frequency(precision);
    Real first(precision);
    SetPower(progression, wave.frequency, frequency);
    SetFirst(progression, stretch, first);
    mpfr_mul(frequency.get(), frequency.get(), first.get(), MPFR_RNDN);
    return frequency;
  };
  const auto scale = [&](int precision) {
    return Real(format.scale, precision);
  };
  RoundSinusoid({wave.kind, position, frequency, scale}, format.type, out);
}

}  // namespace attnbias
