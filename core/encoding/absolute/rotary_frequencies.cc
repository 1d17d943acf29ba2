// SPDX-License-Identifier: Apache-2.0
// The definition of rotary frequencies and factors, over real numbers.
#include "core/encoding/absolute/rotary_frequencies.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/executor.h"

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

int64_t TurningPairs(const v1::Rotary& spec) {
  int64_t resting = std::ranges::count(spec.inverse_frequencies(), 0);
  for (const v1::Axis& axis : spec.axes()) {
    resting += std::ranges::count(axis.ladder().frequencies().values(), 0);
  }
  return RotatingColumns(spec) / 2 - resting;
}

int64_t RotaryPairs(const v1::Rotary& spec) {
  return spec.rope_type() == v1::ROPE_TYPE_PROPORTIONAL
             ? spec.head_dim() / 2
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
  if (spec.axes().empty()) return;
  ranks_.reserve(RotaryPairs(spec));
  for (int64_t pair = 0; pair < RotaryPairs(spec); ++pair) {
    int64_t& pairs = axis_pairs_[RotaryAxisOf(spec, pair)];
    ranks_.push_back(static_cast<int32_t>(pairs++));
  }
}

Real InverseFrequencies::Of(int64_t pair) const {
  const Place place = PlaceOf(pair);
  Real power(working_precision_);
  if (GivenOf(place).empty()) SetPower(place, place.k, power);
  return Finished(pair, std::move(power));
}

std::vector<Real> InverseFrequencies::All() const {
  // Progressions, as far as pairs have got.
  struct Walk {
    int64_t k;
    Real ratio;
    Real power;
  };
  std::map<const v1::Ladder*, Walk> walks;
  std::vector<Real> all;
  all.reserve(RotaryPairs(spec_));
  for (int64_t pair = 0; pair < RotaryPairs(spec_); ++pair) {
    // Frequencies that are not wanted are not looked at.
    (void)MakingScope::Continues();
    const Place place = PlaceOf(pair);
    if (!GivenOf(place).empty()) {
      all.push_back(Finished(pair, Real(working_precision_)));
      continue;
    }
    auto at = walks.find(place.ladder);
    if (at == walks.end()) {
      Walk walk = {0, Real(working_precision_), Real(1, working_precision_)};
      SetPower(place, 1, walk.ratio);
      at = walks.emplace(place.ladder, std::move(walk)).first;
    }
    Walk& walk = at->second;
    for (; walk.k < place.k; ++walk.k) {
      mpfr_mul(walk.power.get(), walk.power.get(), walk.ratio.get(), MPFR_RNDN);
    }
    Real power(working_precision_);
    mpfr_set(power.get(), walk.power.get(), MPFR_RNDN);
    all.push_back(Finished(pair, std::move(power)));
  }
  return all;
}

// Rounding a number leaves it its memory.
int64_t InverseFrequencies::BytesOfAll(const v1::Rotary& spec, int precision) {
  return RotaryPairs(spec) * (Real::BytesOf(precision + kFrequencyGuardBits) +
                              int64_t{sizeof(int32_t)});
}

InverseFrequencies::Place InverseFrequencies::PlaceOf(int64_t pair) const {
  if (!spec_.axes().empty()) {
    const int64_t axis = RotaryAxisOf(spec_, pair);
    const v1::Axis& own = spec_.axes(static_cast<int>(axis));
    if (own.has_ladder()) {
      return {&own.ladder(), ranks_[pair], axis_pairs_[axis]};
    }
  }
  // PROPORTIONAL spaces its frequencies as if all pairs turned.
  return {nullptr, pair, RotaryPairs(spec_)};
}

const google::protobuf::RepeatedField<double>& InverseFrequencies::GivenOf(
    const Place& place) const {
  return place.ladder == nullptr ? spec_.inverse_frequencies()
                                 : place.ladder->frequencies().values();
}

void InverseFrequencies::SetPower(const Place& place, int64_t k,
                                  Real& power) const {
  Real exponent(working_precision_);
  int64_t steps = place.n;
  if (place.ladder == nullptr) {
    mpfr_set(power.get(), theta_.get(), MPFR_RNDN);
  } else if (place.ladder->has_timescales()) {
    const v1::Timescales& timescales = place.ladder->timescales();
    mpfr_set_d(power.get(), timescales.max(), MPFR_RNDN);
    mpfr_div_d(power.get(), power.get(), timescales.min(), MPFR_RNDN);
    steps = std::max<int64_t>(steps - 1, 1);
  } else {
    mpfr_set_d(power.get(), place.ladder->base(), MPFR_RNDN);
  }
  mpfr_set_si(exponent.get(), -k, MPFR_RNDN);
  mpfr_div_si(exponent.get(), exponent.get(), steps, MPFR_RNDN);
  mpfr_pow(power.get(), power.get(), exponent.get(), MPFR_RNDN);
}

Real InverseFrequencies::Finished(int64_t pair, Real frequency) const {
  const Place place = PlaceOf(pair);
  if (!GivenOf(place).empty()) {
    mpfr_set_d(frequency.get(), GivenOf(place)[static_cast<int>(place.k)],
               MPFR_RNDN);
  } else if (place.ladder != nullptr && place.ladder->has_timescales()) {
    mpfr_mul_d(frequency.get(), frequency.get(),
               place.ladder->timescales().min(), MPFR_RNDN);
  }
  Rescale(pair, frequency);
  if (!spec_.axes().empty()) {
    const v1::Axis& axis =
        spec_.axes(static_cast<int>(RotaryAxisOf(spec_, pair)));
    Real length(axis.length(), working_precision_);
    mpfr_add_d(length.get(), length.get(), axis.eps(), MPFR_RNDN);
    mpfr_mul_d(frequency.get(), frequency.get(), axis.scale(), MPFR_RNDN);
    mpfr_div(frequency.get(), frequency.get(), length.get(), MPFR_RNDN);
  }
  mpfr_prec_round(frequency.get(), precision_, MPFR_RNDN);
  return frequency;
}

void InverseFrequencies::Rescale(int64_t pair, Real& frequency) const {
  Real share(working_precision_);
  switch (spec_.rope_type()) {
    case v1::ROPE_TYPE_DEFAULT:
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

}  // namespace attnbias
