// SPDX-License-Identifier: Apache-2.0
// The definition of rotary frequencies and factors, over real numbers.
#include "core/encoding/absolute/rotary_frequencies.h"

#include <algorithm>
#include <utility>

#include "core/base/executor.h"

namespace attnbias {
namespace {

// Returns the pair that rotates `rotations` times over the original length.
Real CorrectionDim(const v1::Rotary& spec, double rotations, const Real& theta) {
  const int64_t length = spec.yarn().original_max_position_embeddings();
  return Log(length / (TwoPi(theta.precision()) * rotations)) * RotatingColumns(spec) /
         (Log(theta) * 2);
}

Real MscaleOf(double factor, double mscale, int precision) {
  return Log(Real(factor, precision)) * mscale / 10 + 1;
}

Real AttentionFactorOf(const v1::Yarn& spec, int precision) {
  if (spec.has_attention_factor()) {
    return Real(spec.attention_factor(), precision);
  }
  if (!spec.has_mscale()) return MscaleOf(spec.factor(), 1, precision);
  return MscaleOf(spec.factor(), spec.mscale(), precision) /
         MscaleOf(spec.factor(), spec.mscale_all_dim(), precision);
}

// Returns sqrt(1 + ln(factor) / ln(original length)), or 1 for factors up to 1.
Real AttentionFactorOf(const v1::Longrope& spec, int precision) {
  if (spec.has_attention_factor()) {
    return Real(spec.attention_factor(), precision);
  }
  const Real original(spec.original_max_position_embeddings(), precision);
  const Real factor = spec.has_factor()
                          ? Real(spec.factor(), precision)
                          : Real(spec.max_position_embeddings(), precision) / original;
  if (mpfr_cmp_ui(factor.get(), 1) <= 0) return Real(1, precision);
  return Sqrt(Log(factor) / Log(original) + 1);
}

// Returns the factor by which Dynamic multiplies the base, before the exponent is applied.
Real RaiseOf(const v1::Dynamic& spec, int precision) {
  const int64_t trained = spec.max_position_embeddings();
  const int64_t length = std::max(spec.sequence_length(), trained);
  return Real(spec.factor(), precision) * length / trained - spec.factor() + 1;
}

Real Clamp01(Real value) {
  if (mpfr_cmp_ui(value.get(), 0) < 0) return Real(0, value.precision());
  if (mpfr_cmp_ui(value.get(), 1) > 0) return Real(1, value.precision());
  return value;
}

// Divides `frequency` by the factor in proportion to `share`: completely at 1, not at all at 0.
void Divide(const Real& share, double factor, Real& frequency) {
  frequency *= 1 - (1 - 1 / Real(factor, frequency.precision())) * share;
}

}  // namespace

int64_t RotatingColumns(const v1::Rotary& spec) {
  const double columns = spec.head_dim() * spec.partial_rotary_factor();
  return static_cast<int64_t>(columns) / 2 * 2;
}

int64_t RotatingPairs(const v1::Rotary& spec) {
  int64_t resting = std::ranges::count(spec.inverse_frequencies(), 0);
  for (const v1::Axis& axis : spec.axes()) {
    resting += std::ranges::count(axis.ladder().frequencies().values(), 0);
  }
  return RotatingColumns(spec) / 2 - resting;
}

int64_t RotaryPairs(const v1::Rotary& spec) {
  return spec.has_proportional() ? spec.head_dim() / 2 : RotatingColumns(spec) / 2;
}

int64_t RotaryAxisOf(const v1::Rotary& spec, int64_t pair) {
  if (!spec.pair_axis().empty()) {
    return spec.pair_axis(static_cast<int>(pair));
  }
  return spec.axes().empty() ? 0 : pair * spec.axes_size() / RotaryPairs(spec);
}

Real EffectiveRopeTheta(const v1::Rotary& spec, int precision) {
  precision += kFrequencyGuardBits;
  Real theta(spec.rope_theta(), precision);
  if (!RaisesRopeTheta(spec)) return theta;
  const Real raise = spec.has_dynamic() ? RaiseOf(spec.dynamic(), precision)
                                        : Real(spec.ntk().factor(), precision);
  const int64_t dim = RotatingColumns(spec);
  return theta * Pow(raise, Real(dim, precision) / (dim - 2));
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
                 .stretch = StretchFactor(own.stretch, working_precision_)};
    if (HasLadder(spec_, std::ssize(axes_))) {
      if (ladder.given != nullptr) axis.given = ladder.given->data();
      axis.first = ladder.first;
      axis.step = PowerOf(ladder, 1, working_precision_);
    } else {
      if (!spec_.inverse_frequencies().empty()) {
        axis.given = spec_.inverse_frequencies().data();
      }
      // Proportional spaces its frequencies as if all pairs rotated.
      mpfr_rootn_ui(axis.step.get(), theta.get(), RotaryPairs(spec_), MPFR_RNDN);
      axis.step = 1 / axis.step;
    }
    axes_.push_back(std::move(axis));
  }
}

Real InverseFrequencies::Of(int64_t pair) const {
  Real power(working_precision_);
  mpfr_pow_si(power.get(), axes_[RotaryAxisOf(spec_, pair)].step.get(), rotation_.places[pair],
              MPFR_RNDN);
  return Finished(pair, std::move(power));
}

void InverseFrequencies::ForEach(absl::FunctionRef<void(Real)> use) const {
  // The next power for each axis.
  std::vector<Real> next(axes_.size(), Real(1, working_precision_));
  for (int64_t pair = 0; pair < RotaryPairs(spec_); ++pair) {
    // Called only to yield, since a cancelled caller discards the result.
    (void)ComputeScope::Continues();
    const int64_t axis = RotaryAxisOf(spec_, pair);
    use(Finished(pair, next[axis]));
    for (int64_t i = 0; i < std::ssize(axes_); ++i) {
      if (i == axis || !HasLadder(spec_, i)) next[i] *= axes_[i].step;
    }
  }
}

Real InverseFrequencies::Finished(int64_t pair, Real power) const {
  const Axis& axis = axes_[RotaryAxisOf(spec_, pair)];
  if (axis.given != nullptr) {
    power = Real(axis.given[rotation_.places[pair]], working_precision_);
  } else {
    power *= axis.first;
  }
  Rescale(pair, power);
  power *= axis.stretch;
  mpfr_prec_round(power.get(), precision_, MPFR_RNDN);
  return power;
}

void InverseFrequencies::Rescale(int64_t pair, Real& frequency) const {
  switch (spec_.extension_case()) {
    case v1::Rotary::kLinear:
      frequency /= spec_.linear().factor();
      return;
    case v1::Rotary::kProportional:
      if (2 * pair >= RotatingColumns(spec_)) {
        frequency = Real(0, working_precision_);
      }
      frequency /= spec_.proportional().factor();
      return;
    case v1::Rotary::kLongrope: {
      const v1::Longrope& own = spec_.longrope();
      frequency /=
          (UsesLongFactor(own) ? own.long_factor() : own.short_factor())[static_cast<int>(pair)];
      return;
    }
    case v1::Rotary::kYarn:
      return Divide(Clamp01((pair - low_) / (high_ - low_)), spec_.yarn().factor(), frequency);
    case v1::Rotary::kLlama3: {
      // 1 minus Llama's smooth factor.
      const v1::Llama3& own = spec_.llama3();
      const Real rotations =
          frequency / TwoPi(working_precision_) * own.original_max_position_embeddings();
      const Real width = Real(own.high_freq_factor(), working_precision_) - own.low_freq_factor();
      return Divide(Clamp01((own.high_freq_factor() - rotations) / width), own.factor(), frequency);
    }
    default:  // no extension, or one that raises the base
      return;
  }
}

void InverseFrequencies::SetCorrectionRange(const Real& theta) {
  low_ = CorrectionDim(spec_, spec_.yarn().beta_fast(), theta);
  high_ = CorrectionDim(spec_, spec_.yarn().beta_slow(), theta);
  if (spec_.yarn().truncate()) {
    mpfr_floor(low_.get(), low_.get());
    mpfr_ceil(high_.get(), high_.get());
  }
  const int64_t last = RotatingColumns(spec_) - 1;
  if (mpfr_cmp_si(low_.get(), 0) < 0) low_ = Real(0, working_precision_);
  if (mpfr_cmp_si(high_.get(), last) > 0) {
    high_ = Real(last, working_precision_);
  }
  // Avoids a vertical ramp, as transformers does.
  if (mpfr_equal_p(low_.get(), high_.get()) != 0) {
    high_ += Real(1, working_precision_) / 1000;
  }
}

}  // namespace attnbias
