// SPDX-License-Identifier: Apache-2.0
// Rotary positions (Su et al. 2021) as an encoding.
#include "core/encoding/spec/rotary.h"

#include <memory>
#include <utility>

#include "core/base/status_macros.h"
#include "core/encoding/absolute/rotary_checks.h"
#include "core/encoding/absolute/rotary_evaluator.h"
#include "core/encoding/absolute/rotary_frequencies.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/sinusoid/float32_angles.h"
#include "core/encoding/sinusoid/sinusoidal_evaluator.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

float NearestFloat(const Real& value) {
  float nearest;
  RoundReal(value, DataType::kF32, reinterpret_cast<std::byte*>(&nearest));
  return nearest;
}

int64_t WidthOf(const RotarySpec& spec) {
  return RotaryPairs(spec) * CopiesIn(spec.layout);
}

std::vector<AxisColumns> ColumnsOf(const RotarySpec& spec) {
  std::vector<AxisColumns> columns;
  const int64_t pairs = RotaryPairs(spec);
  for (int64_t column = 0; column < WidthOf(spec); ++column) {
    const bool paired = spec.layout == RotaryLayout::kInterleaved;
    const int64_t axis =
        RotaryAxisOf(spec, paired ? column / 2 : column % pairs);
    if (columns.empty() || columns.back().axis != axis) {
      columns.push_back({axis, {column, column}});
    }
    ++columns.back().columns.end;
  }
  return columns;
}

std::vector<DerivedValue> Derive(const RotarySpec& spec) {
  const RealCacheScope cache_scope;
  constexpr int kPrecision = 128;
  const auto nearest = [](const Real& value) {
    return mpfr_get_d(value.get(), MPFR_RNDN);
  };
  std::vector<double> frequencies;
  for (const Real& each : InverseFrequencies(spec, kPrecision).All()) {
    frequencies.push_back(spec.angle == AnglePrecision::kFloat32
                              ? NearestFloat(each)
                              : nearest(each));
  }
  std::vector<DerivedValue> derived = {
      {"inverse_frequencies", std::move(frequencies)},
      {"attention_factor",
       {nearest(EffectiveAttentionFactor(spec, kPrecision))}}};
  if (spec.inverse_frequencies.empty()) {
    derived.push_back(
        {"rope_theta", {nearest(EffectiveRopeTheta(spec, kPrecision))}});
  }
  return derived;
}

// Of every element: the attention factor times what was asked for.
RealToAnyPrecision ScaleOf(const RotarySpec& spec, double scale) {
  return [spec, scale](int precision) {
    Real factor = EffectiveAttentionFactor(spec, precision);
    mpfr_mul_d(factor.get(), factor.get(), scale, MPFR_RNDN);
    return factor;
  };
}

// Rows [sines | cosines] of those pairs of `all` that turn.
EvaluatorPtr PrepareFloat32(const std::vector<Real>& all,
                            const RealToAnyPrecision& scale, DataType type) {
  std::vector<float> frequencies;
  for (const Real& each : all) {
    if (mpfr_zero_p(each.get()) == 0) frequencies.push_back(NearestFloat(each));
  }
  return std::make_unique<Float32AngleEvaluator>(std::move(frequencies), scale,
                                                 type);
}

// The same of exact angles.
EvaluatorPtr PrepareExact(const RotarySpec& spec, const std::vector<Real>& all,
                          const RealToAnyPrecision& scale, DataType type,
                          const KernelSet& kernels) {
  std::vector<SinusoidFrequency> frequencies;
  std::vector<int64_t> turning;
  for (size_t pair = 0; pair < all.size(); ++pair) {
    if (mpfr_zero_p(all[pair].get()) != 0) continue;
    frequencies.push_back(FrequencyOf(all[pair]));
    turning.push_back(static_cast<int64_t>(pair));
  }
  const SinusoidColumns columns(
      {.dim = 2 * static_cast<int64_t>(turning.size()),
       .layout = SinusoidalLayout::kConcatenated});
  auto reference = [spec, scale, columns, turning = std::move(turning)](
                       int64_t position, int64_t column, DataType as,
                       std::byte* out) {
    const SinusoidColumns::Place place = columns.PlaceOf(column);
    const auto frequency = [&](int precision) {
      return InverseFrequencies(spec, precision).Of(turning[place.frequency]);
    };
    RoundSinusoid({place.kind, position, frequency, scale}, as, out);
  };
  return std::make_unique<SinusoidalEvaluator>(
      SinusoidRows{.columns = columns,
                   .frequencies = std::move(frequencies),
                   .scale = scale(kSinusoidPrecision),
                   .reference = std::move(reference)},
      type, kernels);
}

EvaluatorPtr Prepare(const RotarySpec& spec, const NumberFormat& format,
                     const KernelSet& kernels) {
  const RealCacheScope cache_scope;
  const std::vector<Real> all =
      InverseFrequencies(spec, kSinusoidPrecision).All();
  std::vector<bool> turns;
  turns.reserve(all.size());
  for (const Real& each : all) turns.push_back(mpfr_zero_p(each.get()) == 0);
  const RealToAnyPrecision scale = ScaleOf(spec, format.scale);
  return std::make_unique<RotaryEvaluator>(
      spec.angle == AnglePrecision::kFloat32
          ? PrepareFloat32(all, scale, format.type)
          : PrepareExact(spec, all, scale, format.type, kernels),
      turns, scale(kSinusoidPrecision), spec.layout, format.type);
}

absl::StatusOr<Encoding> DescribeRotary(const RotarySpec& spec) {
  ATTNBIAS_RETURN_IF_ERROR(CheckRotary(spec));
  return Encoding{
      .lanes = 2,
      .part_names = {"cos", "sin"},
      .width = WidthOf(spec),
      .has_columns = true,
      .domain = kAllPositions,
      .axis_columns = ColumnsOf(spec),
      .derive = [spec] { return Derive(spec); },
      .prepare =
          [spec](const NumberFormat& format, const KernelSet& kernels) {
            return Prepare(spec, format, kernels);
          }};
}

const EncodingRegistration kRotary(&DescribeRotary);

}  // namespace
}  // namespace attnbias
