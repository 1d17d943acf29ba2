// SPDX-License-Identifier: Apache-2.0
// The definition of rotary frequencies and factors, over real numbers.
#include "core/encoding/absolute/rotary_frequencies.h"

#include <algorithm>
#include <utility>

#include "core/base/executor.h"

namespace attnbias {
namespace {

// Bits beyond those asked for. Cancellation costs most where two of a spec's
// doubles are neighbours, Llama3's high and low factors or Yarn's betas: 2^60,
// times the 2^20 that a factor may be; steps of a progression cost 2^16.
constexpr int kFrequencyGuardBits = 160;

// Sets `out` to the pair that turns `rotations` times over the original length.
void SetCorrectionDim(const v1::Rotary& spec, double rotations,
                      const Real& theta, Real& out) {
  mpfr_const_pi(out.get(), MPFR_RNDN);
  mpfr_mul_2ui(out.get(), out.get(), 1, MPFR_RNDN);
  mpfr_mul_d(out.get(), out.get(), rotations, MPFR_RNDN);
  mpfr_si_div(out.get(), spec.yarn().original_max_position_embeddings(),
              out.get(), MPFR_RNDN);
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

Real AttentionFactorOf(const v1::Yarn& spec, int precision) {
  if (spec.has_attention_factor()) {
    return Real(spec.attention_factor(), precision);
  }
  if (!spec.has_mscale()) return MscaleOf(spec.factor(), 1, precision);
  const Real under = MscaleOf(spec.factor(), spec.mscale_all_dim(), precision);
  Real value = MscaleOf(spec.factor(), spec.mscale(), precision);
  mpfr_div(value.get(), value.get(), under.get(), MPFR_RNDN);
  return value;
}

// sqrt(1 + ln(factor) / ln(original length)), 1 for factors up to 1.
Real AttentionFactorOf(const v1::Longrope& spec, int precision) {
  Real value(spec.attention_factor(), precision);
  if (spec.has_attention_factor()) return value;
  const int64_t original = spec.original_max_position_embeddings();
  if (spec.has_factor()) {
    mpfr_set_d(value.get(), spec.factor(), MPFR_RNDN);
  } else {
    mpfr_set_si(value.get(), spec.max_position_embeddings(), MPFR_RNDN);
    mpfr_div_si(value.get(), value.get(), original, MPFR_RNDN);
  }
  if (mpfr_cmp_ui(value.get(), 1) <= 0) {
    return Real(1, precision);
  }
  Real log_original(precision);
  mpfr_set_si(log_original.get(), original, MPFR_RNDN);
  mpfr_log(log_original.get(), log_original.get(), MPFR_RNDN);
  mpfr_log(value.get(), value.get(), MPFR_RNDN);
  mpfr_div(value.get(), value.get(), log_original.get(), MPFR_RNDN);
  mpfr_add_ui(value.get(), value.get(), 1, MPFR_RNDN);
  mpfr_sqrt(value.get(), value.get(), MPFR_RNDN);
  return value;
}

// Sets `raise` to what Dynamic raises the base by, before the power.
void SetRaise(const v1::Dynamic& spec, Real& raise) {
  const int64_t trained = spec.max_position_embeddings();
  const int64_t length = std::max(spec.sequence_length(), trained);
  mpfr_set_d(raise.get(), spec.factor(), MPFR_RNDN);
  mpfr_mul_si(raise.get(), raise.get(), length, MPFR_RNDN);
  mpfr_div_si(raise.get(), raise.get(), trained, MPFR_RNDN);
  mpfr_sub_d(raise.get(), raise.get(), spec.factor(), MPFR_RNDN);
  mpfr_add_ui(raise.get(), raise.get(), 1, MPFR_RNDN);
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

int64_t TurningPairs(const v1::Rotary& spec) {
  int64_t resting = std::ranges::count(spec.inverse_frequencies(), 0);
  for (const v1::Axis& axis : spec.axes()) {
    resting += std::ranges::count(axis.ladder().frequencies().values(), 0);
  }
  return RotatingColumns(spec) / 2 - resting;
}

int64_t RotaryPairs(const v1::Rotary& spec) {
  return spec.has_proportional() ? spec.head_dim() / 2
                                 : RotatingColumns(spec) / 2;
}

int64_t RotaryAxisOf(const v1::Rotary& spec, int64_t pair) {
  if (!spec.pair_axis().empty()) {
    return spec.pair_axis(static_cast<int>(pair));
  }
  return spec.axes().empty() ? 0 : pair * spec.axes_size() / RotaryPairs(spec);
}

Real EffectiveRopeTheta(const v1::Rotary& spec, int precision) {
  Real theta(spec.rope_theta(), precision + kFrequencyGuardBits);
  if (!RaisesRopeTheta(spec)) return theta;
  Real raise(spec.ntk().factor(), theta.precision());
  if (spec.has_dynamic()) SetRaise(spec.dynamic(), raise);
  Real exponent(theta.precision());
  const int64_t dim = RotatingColumns(spec);
  mpfr_set_si(exponent.get(), dim, MPFR_RNDN);
  mpfr_div_si(exponent.get(), exponent.get(), dim - 2, MPFR_RNDN);
  mpfr_pow(raise.get(), raise.get(), exponent.get(), MPFR_RNDN);
  mpfr_mul(theta.get(), theta.get(), raise.get(), MPFR_RNDN);
  return theta;
}

Real EffectiveAttentionFactor(const v1::Rotary& spec, int precision) {
  precision += kFrequencyGuardBits;
  if (spec.has_yarn()) return AttentionFactorOf(spec.yarn(), precision);
  if (spec.has_longrope()) return AttentionFactorOf(spec.longrope(), precision);
  return Real(1, precision);
}

InverseFrequencies::InverseFrequencies(const Rotation& rotation, int precision)
    : rotation_(rotation),
      spec_(rotation.spec),
      precision_(precision),
      working_precision_(precision + kFrequencyGuardBits),
      low_(working_precision_),
      high_(working_precision_) {
  const Real theta = EffectiveRopeTheta(spec_, precision);
  if (spec_.has_yarn()) SetCorrectionRange(theta);
  for (const SinusoidAxis& own : rotation.axes) {
    const SinusoidLadder& ladder = own.ladder;
    Axis axis = {.given = nullptr,
                 .first = 1,
                 .step = Real(working_precision_),
                 .stretch = Real(working_precision_)};
    if (HasLadder(spec_, std::ssize(axes_))) {
      if (ladder.given != nullptr) axis.given = ladder.given->data();
      axis.first = ladder.first;
      SetPower(ladder, 1, axis.step);
    } else {
      if (!spec_.inverse_frequencies().empty()) {
        axis.given = spec_.inverse_frequencies().data();
      }
      // Proportional spaces its frequencies as if all pairs turned.
      mpfr_rootn_ui(axis.step.get(), theta.get(), RotaryPairs(spec_),
                    MPFR_RNDN);
      mpfr_ui_div(axis.step.get(), 1, axis.step.get(), MPFR_RNDN);
    }
    SetStretch(own.stretch, axis.stretch);
    axes_.push_back(std::move(axis));
  }
}

Real InverseFrequencies::Of(int64_t pair) const {
  Real power(working_precision_);
  mpfr_pow_si(power.get(), axes_[RotaryAxisOf(spec_, pair)].step.get(),
              rotation_.places[pair], MPFR_RNDN);
  return Finished(pair, std::move(power));
}

std::vector<Real> InverseFrequencies::All() const {
  // The next power of each axis.
  std::vector<Real> next;
  for (size_t i = 0; i < axes_.size(); ++i) {
    next.emplace_back(1, working_precision_);
  }
  std::vector<Real> all;
  const int64_t pairs = RotaryPairs(spec_);
  all.reserve(pairs);
  for (int64_t pair = 0; pair < pairs; ++pair) {
    // Frequencies that are not wanted are not looked at.
    (void)MakingScope::Continues();
    const int64_t axis = RotaryAxisOf(spec_, pair);
    Real power(working_precision_);
    mpfr_set(power.get(), next[axis].get(), MPFR_RNDN);
    all.push_back(Finished(pair, std::move(power)));
    for (int64_t i = 0; i < std::ssize(axes_); ++i) {
      if (i != axis && HasLadder(spec_, i)) continue;
      mpfr_mul(next[i].get(), next[i].get(), axes_[i].step.get(), MPFR_RNDN);
    }
  }
  return all;
}

// Rounding a number leaves it its memory.
int64_t InverseFrequencies::BytesOfAll(const v1::Rotary& spec, int precision) {
  return RotaryPairs(spec) * Real::BytesOf(precision + kFrequencyGuardBits);
}

Real InverseFrequencies::Finished(int64_t pair, Real power) const {
  const Axis& axis = axes_[RotaryAxisOf(spec_, pair)];
  if (axis.given != nullptr) {
    mpfr_set_d(power.get(), axis.given[rotation_.places[pair]], MPFR_RNDN);
  } else {
    mpfr_mul_d(power.get(), power.get(), axis.first, MPFR_RNDN);
  }
  Rescale(pair, power);
  mpfr_mul(power.get(), power.get(), axis.stretch.get(), MPFR_RNDN);
  mpfr_prec_round(power.get(), precision_, MPFR_RNDN);
  return power;
}

void InverseFrequencies::Rescale(int64_t pair, Real& frequency) const {
  Real share(working_precision_);
  const auto divide = [&](double divisor) {
    mpfr_div_d(frequency.get(), frequency.get(), divisor, MPFR_RNDN);
  };
  switch (spec_.extension_case()) {
    case v1::Rotary::kLinear:
      return divide(spec_.linear().factor());
    case v1::Rotary::kProportional:
      if (2 * pair >= RotatingColumns(spec_)) {
        mpfr_set_ui(frequency.get(), 0, MPFR_RNDN);
      }
      return divide(spec_.proportional().factor());
    case v1::Rotary::kLongrope: {
      const v1::Longrope& own = spec_.longrope();
      return divide((UsesLongFactor(own)
                         ? own.long_factor()
                         : own.short_factor())[static_cast<int>(pair)]);
    }
    case v1::Rotary::kYarn:
      SetYarnRamp(pair, share);
      return Divide(share, spec_.yarn().factor(), frequency);
    case v1::Rotary::kLlama3:
      SetLlama3Ramp(frequency, share);
      return Divide(share, spec_.llama3().factor(), frequency);
    default:  // none, or one that raises the base
      return;
  }
}

void InverseFrequencies::SetCorrectionRange(const Real& theta) {
  SetCorrectionDim(spec_, spec_.yarn().beta_fast(), theta, low_);
  SetCorrectionDim(spec_, spec_.yarn().beta_slow(), theta, high_);
  if (spec_.yarn().truncate()) {
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
  const v1::Llama3& own = spec_.llama3();
  mpfr_const_pi(ramp.get(), MPFR_RNDN);
  mpfr_mul_2ui(ramp.get(), ramp.get(), 1, MPFR_RNDN);
  mpfr_div(ramp.get(), frequency.get(), ramp.get(), MPFR_RNDN);
  mpfr_mul_si(ramp.get(), ramp.get(), own.original_max_position_embeddings(),
              MPFR_RNDN);
  mpfr_d_sub(ramp.get(), own.high_freq_factor(), ramp.get(), MPFR_RNDN);
  Real width(own.high_freq_factor(), working_precision_);
  mpfr_sub_d(width.get(), width.get(), own.low_freq_factor(), MPFR_RNDN);
  mpfr_div(ramp.get(), ramp.get(), width.get(), MPFR_RNDN);
  Clamp01(ramp);
}

}  // namespace attnbias
