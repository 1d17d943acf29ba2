// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/sinusoid/float32_angles.h"

#include <cmath>
#include <memory>
#include <utility>

#include "core/encoding/common/scaled_rounding.h"
#include "core/numerics/turn.h"

namespace attnbias {
namespace {

// Reduces so many radians, which are as exact as a position is.
ReducedAngle Reduced(float angle) {
  static const FloatingTurn radian = [] {
    const RealCacheScope cache_scope;
    return FrequencyOf(Real(1, kSinusoidPrecision)).floating_turns;
  }();
  const TurnTerm term[] = {
      {radian, BinarySum(angle, 0).value_or(BinaryPosition())}};
  return AngleOf(term);
}

class Float32AngleEvaluator final : public Evaluator {
 public:
  Float32AngleEvaluator(std::vector<float> inverse_frequencies,
                        RealToAnyPrecision scale, DataType type)
      : inverse_frequencies_(std::move(inverse_frequencies)),
        scale_(std::move(scale)),
        rounding_(scale_(kSinusoidPrecision), type),
        type_(type) {}

  void Fill(const Block& block, std::byte* out,
            int64_t /*lane_stride_bytes*/) const override {
    const int64_t half =
        static_cast<int64_t>(inverse_frequencies_.size()) * SizeOf(type_);
    for (int64_t at = block.span.begin; at < block.span.end; ++at) {
      const auto position = static_cast<float>(at);
      for (const float inverse_frequency : inverse_frequencies_) {
        Write(position * inverse_frequency, out, out + half);
        out += SizeOf(type_);
      }
      out += half;
    }
  }

 private:
  void Write(float angle, std::byte* sine, std::byte* cosine) const {
    using Kind = SinusoidColumns::Kind;
    if (angle == 0) {
      Resolve(Kind::kSine, angle, sine);
      Resolve(Kind::kCosine, angle, cosine);
      return;
    }
    const SinCos both = SinCosOf(Reduced(angle));
    const bool usable = both.error < 1;
    if (!usable || !rounding_.TryRound(
                       both.sin, both.error * std::fabs(both.sin.hi), sine)) {
      Resolve(Kind::kSine, angle, sine);
    }
    if (!usable || !rounding_.TryRound(
                       both.cos, both.error * std::fabs(both.cos.hi), cosine)) {
      Resolve(Kind::kCosine, angle, cosine);
    }
  }

  void Resolve(SinusoidColumns::Kind kind, float angle, std::byte* out) const {
    const auto exact = [angle](int precision) {
      Real value(precision);
      mpfr_set_flt(value.get(), angle, MPFR_RNDN);
      return value;
    };
    RoundSinusoid({kind, angle == 0 ? 0 : 1, exact, scale_}, type_, out);
  }

  const std::vector<float> inverse_frequencies_;
  const RealToAnyPrecision scale_;
  const ScaledRounding rounding_;
  const DataType type_;
};

}  // namespace

EvaluatorPtr PrepareFloat32Angles(std::vector<float> inverse_frequencies,
                                  RealToAnyPrecision scale, DataType type) {
  return std::make_unique<Float32AngleEvaluator>(std::move(inverse_frequencies),
                                                 std::move(scale), type);
}

}  // namespace attnbias
