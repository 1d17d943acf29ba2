// SPDX-License-Identifier: Apache-2.0
// The definition of rotary frequencies and factors, over real numbers.
#include "core/encoding/absolute/rotary_frequencies.h"

#include <algorithm>
#include <utility>

namespace attnbias {
namespace {

// Bits beyond those asked for. Cancellation costs most where two of a spec's
// doubles are neighbours, LLAMA3's high and low factors or YARN's betas: 2^60,
// times the 2^20 that a factor may be; products of a progression cost 2^16.
constexpr int kFrequencyGuardBits = 160;

void SetCorrectionDim(const v1::Rotary& spec, double rotations,
                      const Real& theta, Real& out) {
  mpfr_const_pi(out.get(), MPFR_RNDN);
  mpfr_mul_2ui(out.get(), out.get(), 1, MPFR_RNDN);
  mpfr_mul_d(out.get(), out.get(), rotations, MPFR_RNDN);
  mpfr_si_div(out.get(), spec.original_max_position_embeddings(), out.get(),
              MPFR_RNDN);
  mpfr_log(out.get(), out.get(), MPFR_RNDN);
  mpfr_mul_si(out.get(), out.get(), RotatingColumns(spec), MPFR_RNDN);
  Real log_theta(out.precision());
  mpfr_log(log_theta.get(), theta.get(), MPFR_RNDN);
  mpfr_mul_2ui(log_theta.get(), log_theta.get(), 1, MPFR_RNDN);
  mpfr_div(out.get(), out.get(), log_theta.get(), MPFR_RNDN);
}

// YaRN's temperature: 0.1 mscale ln(factor) + 1.
Real MscaleOf(double factor, double mscale, int precision) {
  Real value(factor, precision);
  mpfr_log(value.get(), value.get(), MPFR_RNDN);
  mpfr_mul_d(value.get(), value.get(), mscale, MPFR_RNDN);
  mpfr_div_ui(value.get(), value.get(), 10, MPFR_RNDN);
  mpfr_add_ui(value.get(), value.get(), 1, MPFR_RNDN);
  return value;
}

void SetYarnAttentionFactor(const v1::Rotary& spec, Real& value) {
  const int precision = value.precision();
  if (!spec.has_mscale()) {
    value = MscaleOf(spec.factor(), 1, precision);
    return;
  }
  const Real under = MscaleOf(spec.factor(), spec.mscale_all_dim(), precision);
  value = MscaleOf(spec.factor(), spec.mscale(), precision);
  mpfr_div(value.get(), value.get(), under.get(), MPFR_RNDN);
}

// sqrt(1 + ln(factor) / ln(original length)), 1 for factors up to 1.
void SetLongropeAttentionFactor(const v1::Rotary& spec, Real& value) {
  const int64_t original = spec.original_max_position_embeddings();
  if (spec.has_factor()) {
    mpfr_set_d(value.get(), spec.factor(), MPFR_RNDN);
  } else {
    mpfr_set_si(value.get(), spec.max_position_embeddings(), MPFR_RNDN);
    mpfr_div_si(value.get(), value.get(), original, MPFR_RNDN);
  }
  if (mpfr_cmp_ui(value.get(), 1) <= 0) {
    mpfr_set_ui(value.get(), 1, MPFR_RNDN);
    return;
  }
  Real log_original(value.precision());
  mpfr_set_si(log_original.get(), original, MPFR_RNDN);
  mpfr_log(log_original.get(), log_original.get(), MPFR_RNDN);
  mpfr_log(value.get(), value.get(), MPFR_RNDN);
  mpfr_div(value.get(), value.get(), log_original.get(), MPFR_RNDN);
  mpfr_add_ui(value.get(), value.get(), 1, MPFR_RNDN);
  mpfr_sqrt(value.get(), value.get(), MPFR_RNDN);
}

// What DYNAMIC and NTK raise the base by, before the power.
void SetStretch(const v1::Rotary& spec, Real& stretch) {
  mpfr_set_d(stretch.get(), spec.factor(), MPFR_RNDN);
  if (spec.rope_type() == v1::ROPE_TYPE_NTK) return;
  const int64_t trained = spec.max_position_embeddings();
  const int64_t length = std::max(spec.sequence_length(), trained);
  mpfr_mul_si(stretch.get(), stretch.get(), length, MPFR_RNDN);
  mpfr_div_si(stretch.get(), stretch.get(), trained, MPFR_RNDN);
  mpfr_sub_d(stretch.get(), stretch.get(), spec.factor(), MPFR_RNDN);
  mpfr_add_ui(stretch.get(), stretch.get(), 1, MPFR_RNDN);
}

void Clamp01(Real& value) {
  if (mpfr_cmp_ui(value.get(), 0) < 0) mpfr_set_ui(value.get(), 0, MPFR_RNDN);
  if (mpfr_cmp_ui(value.get(), 1) > 0) mpfr_set_ui(value.get(), 1, MPFR_RNDN);
}

// frequency x (1 - share (1 - 1 / factor)): divided by the factor where the
// share is 1, kept where it is 0.
void Divide(const Real& share, double factor, Real& frequency) {
  Real blend(factor, frequency.precision());
  mpfr_ui_div(blend.get(), 1, blend.get(), MPFR_RNDN);
  mpfr_ui_sub(blend.get(), 1, blend.get(), MPFR_RNDN);
  mpfr_mul(blend.get(), blend.get(), share.get(), MPFR_RNDN);
  mpfr_ui_sub(blend.get(), 1, blend.get(), MPFR_RNDN);
  mpfr_mul(frequency.get(), frequency.get(), blend.get(), MPFR_RNDN);
}

}  // namespace

int64_t RotatingColumns(const v1::Rotary& spec) {
  const double columns = spec.head_dim() * spec.partial_rotary_factor();
  return static_cast<int64_t>(columns) / 2 * 2;
}

v1::Rotary WithAxes(const v1::Rotary& given) {
  v1::Rotary spec = given;
  if (spec.rope_type() != v1::ROPE_TYPE_AXIAL) return spec;
  spec.set_rope_type(v1::ROPE_TYPE_DEFAULT);
  spec.set_mrope_order(v1::MROPE_ORDER_AXIAL);
  if (spec.mrope_section().empty()) {
    const auto half = static_cast<int32_t>(RotatingColumns(spec) / 4);
    spec.add_mrope_section(half);
    spec.add_mrope_section(half);
  }
  return spec;
}

int64_t TurningPairs(const v1::Rotary& spec) {
  const auto& given = spec.inverse_frequencies();
  if (!given.empty()) {
    return std::count_if(given.begin(), given.end(),
                         [](double frequency) { return frequency != 0; });
  }
  return RotatingColumns(spec) / 2;
}

int64_t RotaryPairs(const v1::Rotary& spec) {
  return spec.rope_type() == v1::ROPE_TYPE_PROPORTIONAL
             ? spec.head_dim() / 2
             : RotatingColumns(spec) / 2;
}

int64_t RotaryAxisOf(const v1::Rotary& spec, int64_t pair) {
  const auto& sections = spec.mrope_section();
  if (sections.empty()) return 0;
  const int num_axes = sections.size();
  if (spec.mrope_order() == v1::MROPE_ORDER_INTERLEAVED) {
    const auto axis = static_cast<int>(pair % num_axes);
    return pair / num_axes < sections[axis] ? axis : 0;
  }
  int axis = 0;
  for (; pair >= sections[axis]; ++axis) pair -= sections[axis];
  return axis;
}

Real EffectiveRopeTheta(const v1::Rotary& spec, int precision) {
  Real theta(spec.rope_theta(), precision + kFrequencyGuardBits);
  if (spec.rope_type() == v1::ROPE_TYPE_DYNAMIC ||
      spec.rope_type() == v1::ROPE_TYPE_NTK) {
    Real stretch(precision + kFrequencyGuardBits);
    Real exponent(precision + kFrequencyGuardBits);
    const int64_t dim = RotatingColumns(spec);
    SetStretch(spec, stretch);
    mpfr_set_si(exponent.get(), dim, MPFR_RNDN);
    mpfr_div_si(exponent.get(), exponent.get(), dim - 2, MPFR_RNDN);
    mpfr_pow(stretch.get(), stretch.get(), exponent.get(), MPFR_RNDN);
    mpfr_mul(theta.get(), theta.get(), stretch.get(), MPFR_RNDN);
  }
  return theta;
}

Real EffectiveAttentionFactor(const v1::Rotary& spec, int precision) {
  Real value(spec.has_attention_factor() ? spec.attention_factor() : 1,
             precision + kFrequencyGuardBits);
  if (spec.has_attention_factor()) return value;
  if (spec.rope_type() == v1::ROPE_TYPE_YARN)
    SetYarnAttentionFactor(spec, value);
  if (spec.rope_type() == v1::ROPE_TYPE_LONGROPE) {
    SetLongropeAttentionFactor(spec, value);
  }
  return value;
}

InverseFrequencies::InverseFrequencies(const v1::Rotary& spec, int precision)
    : spec_(spec),
      precision_(precision),
      working_precision_(precision + kFrequencyGuardBits),
      theta_(EffectiveRopeTheta(spec, precision)),
      low_(working_precision_),
      high_(working_precision_) {
  if (spec.rope_type() == v1::ROPE_TYPE_YARN) SetCorrectionRange();
}

Real InverseFrequencies::Of(int64_t pair) const {
  if (!spec_.inverse_frequencies().empty()) {
    return Rounded(Real(spec_.inverse_frequencies(static_cast<int>(pair)),
                        working_precision_));
  }
  Real frequency(working_precision_);
  SetPower(ExponentOf(pair), frequency);
  Rescale(pair, frequency);
  return Rounded(std::move(frequency));
}

std::vector<Real> InverseFrequencies::All() const {
  std::vector<Real> all;
  all.reserve(RotaryPairs(spec_));
  Real ratio(working_precision_);
  Real power(working_precision_);
  for (int64_t pair = 0; pair < RotaryPairs(spec_); ++pair) {
    // Frequencies that are not wanted are not looked at.
    (void)MakingScope::Continues();
    if (!spec_.inverse_frequencies().empty()) {
      all.push_back(Of(pair));
      continue;
    }
    const Exponent exponent = ExponentOf(pair);
    if (exponent.k == 0) {
      SetPower({1, exponent.n}, ratio);
      mpfr_set_ui(power.get(), 1, MPFR_RNDN);
    } else {
      mpfr_mul(power.get(), power.get(), ratio.get(), MPFR_RNDN);
    }
    Real frequency(working_precision_);
    mpfr_set(frequency.get(), power.get(), MPFR_RNDN);
    Rescale(pair, frequency);
    all.push_back(Rounded(std::move(frequency)));
  }
  return all;
}

// Rounding a number leaves it its memory.
int64_t InverseFrequencies::BytesOfAll(const v1::Rotary& spec, int precision) {
  return RotaryPairs(spec) * Real::BytesOf(precision + kFrequencyGuardBits);
}

InverseFrequencies::Exponent InverseFrequencies::ExponentOf(
    int64_t pair) const {
  if (spec_.mrope_order() == v1::MROPE_ORDER_AXIAL) {
    for (const int64_t section : spec_.mrope_section()) {
      if (pair < section) return {pair, section};
      pair -= section;
    }
  }
  // PROPORTIONAL spaces its frequencies as if all pairs turned.
  return {pair, RotaryPairs(spec_)};
}

void InverseFrequencies::SetPower(Exponent exponent, Real& power) const {
  Real quotient(working_precision_);
  mpfr_set_si(quotient.get(), -exponent.k, MPFR_RNDN);
  mpfr_div_si(quotient.get(), quotient.get(), exponent.n, MPFR_RNDN);
  mpfr_pow(power.get(), theta_.get(), quotient.get(), MPFR_RNDN);
}

void InverseFrequencies::Rescale(int64_t pair, Real& frequency) const {
  Real share(working_precision_);
  switch (spec_.rope_type()) {
    case v1::ROPE_TYPE_DEFAULT:
    case v1::ROPE_TYPE_AXIAL:
    case v1::ROPE_TYPE_DYNAMIC:
    case v1::ROPE_TYPE_NTK:
      return;
    case v1::ROPE_TYPE_PROPORTIONAL:
      if (2 * pair >= RotatingColumns(spec_)) {
        mpfr_set_ui(frequency.get(), 0, MPFR_RNDN);
      }
      mpfr_div_d(frequency.get(), frequency.get(),
                 spec_.has_factor() ? spec_.factor() : 1, MPFR_RNDN);
      return;
    case v1::ROPE_TYPE_LINEAR:
      mpfr_div_d(frequency.get(), frequency.get(), spec_.factor(), MPFR_RNDN);
      return;
    case v1::ROPE_TYPE_LONGROPE:
      mpfr_div_d(frequency.get(), frequency.get(),
                 (UsesLongFactor(spec_)
                      ? spec_.long_factor()
                      : spec_.short_factor())[static_cast<int>(pair)],
                 MPFR_RNDN);
      return;
    case v1::ROPE_TYPE_YARN:
      SetYarnRamp(pair, share);
      break;
    case v1::ROPE_TYPE_LLAMA3:
      SetLlama3Ramp(frequency, share);
      break;
    default:  // Complete has refused it.
      return;
  }
  Divide(share, spec_.factor(), frequency);
}

void InverseFrequencies::SetCorrectionRange() {
  SetCorrectionDim(spec_, spec_.beta_fast(), theta_, low_);
  SetCorrectionDim(spec_, spec_.beta_slow(), theta_, high_);
  if (spec_.truncate()) {
    mpfr_floor(low_.get(), low_.get());
    mpfr_ceil(high_.get(), high_.get());
  }
  const int64_t last = RotatingColumns(spec_) - 1;
  if (mpfr_cmp_si(low_.get(), 0) < 0) mpfr_set_si(low_.get(), 0, MPFR_RNDN);
  if (mpfr_cmp_si(high_.get(), last) > 0) {
    mpfr_set_si(high_.get(), last, MPFR_RNDN);
  }
  // transformers' way to have a ramp that is not vertical.
  if (mpfr_equal_p(low_.get(), high_.get()) != 0) {
    Real step(working_precision_);
    mpfr_set_ui(step.get(), 1, MPFR_RNDN);
    mpfr_div_ui(step.get(), step.get(), 1000, MPFR_RNDN);
    mpfr_add(high_.get(), high_.get(), step.get(), MPFR_RNDN);
  }
}

void InverseFrequencies::SetYarnRamp(int64_t pair, Real& ramp) const {
  Real width(working_precision_);
  mpfr_sub(width.get(), high_.get(), low_.get(), MPFR_RNDN);
  mpfr_si_sub(ramp.get(), pair, low_.get(), MPFR_RNDN);
  mpfr_div(ramp.get(), ramp.get(), width.get(), MPFR_RNDN);
  Clamp01(ramp);
}

// 1 minus Llama's smooth factor, (original / wavelength - low) / (high - low).
void InverseFrequencies::SetLlama3Ramp(const Real& frequency,
                                       Real& ramp) const {
  mpfr_const_pi(ramp.get(), MPFR_RNDN);
  mpfr_mul_2ui(ramp.get(), ramp.get(), 1, MPFR_RNDN);
  mpfr_div(ramp.get(), frequency.get(), ramp.get(), MPFR_RNDN);
  mpfr_mul_si(ramp.get(), ramp.get(), spec_.original_max_position_embeddings(),
              MPFR_RNDN);
  mpfr_d_sub(ramp.get(), spec_.high_freq_factor(), ramp.get(), MPFR_RNDN);
  Real width(spec_.high_freq_factor(), working_precision_);
  mpfr_sub_d(width.get(), width.get(), spec_.low_freq_factor(), MPFR_RNDN);
  mpfr_div(ramp.get(), ramp.get(), width.get(), MPFR_RNDN);
  Clamp01(ramp);
}

Real InverseFrequencies::Rounded(Real frequency) const {
  mpfr_prec_round(frequency.get(), precision_, MPFR_RNDN);
  return frequency;
}

}  // namespace attnbias
