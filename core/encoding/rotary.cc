// SPDX-License-Identifier: Apache-2.0
// Rotary positions (Su et al. 2021) as an encoding.
#include "core/encoding/rotary.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "core/base/status_macros.h"
#include "core/encoding/checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/float32_angles.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/rotary_checks.h"
#include "core/encoding/rotary_evaluator.h"
#include "core/encoding/sinusoidal_evaluator.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

float NearestFloat(const Real& value) {
  float nearest;
  RoundReal(value, DataType::kF32, reinterpret_cast<std::byte*>(&nearest));
  return nearest;
}

class RotaryEncoding final : public Encoding {
 public:
  RotaryEncoding(const RotarySpec& spec, double scale)
      : spec_(spec), scale_(scale) {}

  std::string_view name() const override { return "rotary"; }
  Structure structure() const override { return Structure::kTable; }
  int64_t lanes() const override { return 2; }
  std::vector<std::string_view> part_names() const override {
    return {"cos", "sin"};
  }
  int64_t width() const override {
    return RotaryPairs(spec_) * CopiesIn(spec_.layout);
  }
  Range domain() const override { return kAllPositions; }

  std::vector<AxisColumns> axis_columns() const override {
    std::vector<AxisColumns> runs;
    const int64_t pairs = RotaryPairs(spec_);
    for (int64_t column = 0; column < width(); ++column) {
      const bool paired = spec_.layout == RotaryLayout::kInterleaved;
      const int64_t axis =
          RotaryAxisOf(spec_, paired ? column / 2 : column % pairs);
      if (runs.empty() || runs.back().axis != axis) {
        runs.push_back({axis, {column, column}});
      }
      ++runs.back().columns.end;
    }
    return runs;
  }

  std::vector<DerivedValue> derived() const override {
    std::call_once(derived_once_, [this] { derived_ = Derive(); });
    return derived_;
  }

  void WriteIdentity(CanonicalWriter& writer) const override;

  std::unique_ptr<const Evaluator> Prepare(
      DataType type, const KernelSet& kernels) const override;

 private:
  std::vector<DerivedValue> Derive() const;
  RealToAnyPrecision Scale() const;
  // Rows [sines | cosines] of those pairs of `all` that turn.
  std::unique_ptr<const Evaluator> PrepareFloat32(const std::vector<Real>& all,
                                                  DataType type) const;
  std::unique_ptr<const Evaluator> PrepareExact(const std::vector<Real>& all,
                                                DataType type,
                                                const KernelSet& kernels) const;

  const RotarySpec spec_;
  const double scale_;
  mutable std::once_flag derived_once_;
  mutable std::vector<DerivedValue> derived_;
};

// Of what some sequence lengths leave the same, only what is in force is
// written.
void RotaryEncoding::WriteIdentity(CanonicalWriter& writer) const {
  const auto real = [&writer](int field, std::optional<double> value,
                              double default_value) {
    writer.Real(field, value.value_or(default_value), default_value);
  };
  writer.Integer(1, spec_.head_dim);
  real(2, spec_.rope_theta, RotarySpec::kRopeTheta);
  real(3, spec_.partial_rotary_factor, 1);
  writer.Integer(4, static_cast<int64_t>(spec_.layout),
                 static_cast<int64_t>(RotaryLayout::kHalf));
  writer.Integer(5, static_cast<int64_t>(spec_.rope_type),
                 static_cast<int64_t>(RopeType::kDefault));
  real(6, spec_.factor, 1);
  writer.Integer(7, spec_.max_position_embeddings.value_or(0));
  writer.Integer(8, spec_.original_max_position_embeddings.value_or(0));
  if (spec_.rope_type == RopeType::kDynamic) {
    writer.Integer(
        9, std::max(*spec_.sequence_length, *spec_.max_position_embeddings));
  }
  real(10, spec_.beta_fast, RotarySpec::kBetaFast);
  real(11, spec_.beta_slow, RotarySpec::kBetaSlow);
  real(12, spec_.mscale, 0);
  real(13, spec_.mscale_all_dim, 0);
  writer.Integer(14, spec_.truncate.value_or(true) ? 1 : 0, 1);
  real(15, spec_.attention_factor, 0);
  if (spec_.rope_type == RopeType::kLongrope) {
    const bool is_long = IsLongrope(spec_);
    writer.Reals(is_long ? 17 : 16,
                 is_long ? spec_.long_factor : spec_.short_factor);
  }
  real(18, spec_.low_freq_factor, 0);
  real(19, spec_.high_freq_factor, 0);
  writer.Integers(20, spec_.mrope_section);
  writer.Integer(21, static_cast<int64_t>(spec_.mrope_order),
                 static_cast<int64_t>(MropeOrder::kChunked));
  writer.Integer(22, static_cast<int64_t>(spec_.angle),
                 static_cast<int64_t>(AnglePrecision::kExact));
  writer.Reals(23, spec_.inverse_frequencies);
  writer.Real(101, scale_, 1);
}

std::vector<DerivedValue> RotaryEncoding::Derive() const {
  const RealCacheScope cache_scope;
  constexpr int kPrecision = 128;
  const auto nearest = [](const Real& value) {
    return mpfr_get_d(value.get(), MPFR_RNDN);
  };
  std::vector<double> frequencies;
  for (const Real& each : InverseFrequencies(spec_, kPrecision).All()) {
    frequencies.push_back(spec_.angle == AnglePrecision::kFloat32
                              ? NearestFloat(each)
                              : nearest(each));
  }
  std::vector<DerivedValue> derived = {
      {"inverse_frequencies", std::move(frequencies)},
      {"attention_factor",
       {nearest(EffectiveAttentionFactor(spec_, kPrecision))}}};
  if (spec_.inverse_frequencies.empty()) {
    derived.push_back(
        {"rope_theta", {nearest(EffectiveRopeTheta(spec_, kPrecision))}});
  }
  return derived;
}

// Of every element: the attention factor times what was asked for.
RealToAnyPrecision RotaryEncoding::Scale() const {
  return [spec = spec_, scale = scale_](int precision) {
    Real factor = EffectiveAttentionFactor(spec, precision);
    mpfr_mul_d(factor.get(), factor.get(), scale, MPFR_RNDN);
    return factor;
  };
}

std::unique_ptr<const Evaluator> RotaryEncoding::Prepare(
    DataType type, const KernelSet& kernels) const {
  const RealCacheScope cache_scope;
  const std::vector<Real> all =
      InverseFrequencies(spec_, kSinusoidPrecision).All();
  std::vector<bool> turns;
  turns.reserve(all.size());
  for (const Real& each : all) turns.push_back(mpfr_zero_p(each.get()) == 0);
  return std::make_unique<RotaryEvaluator>(
      spec_.angle == AnglePrecision::kFloat32
          ? PrepareFloat32(all, type)
          : PrepareExact(all, type, kernels),
      turns, Scale()(kSinusoidPrecision), spec_.layout, type);
}

std::unique_ptr<const Evaluator> RotaryEncoding::PrepareFloat32(
    const std::vector<Real>& all, DataType type) const {
  std::vector<float> frequencies;
  for (const Real& each : all) {
    if (mpfr_zero_p(each.get()) == 0) frequencies.push_back(NearestFloat(each));
  }
  return std::make_unique<Float32AngleEvaluator>(std::move(frequencies),
                                                 Scale(), type);
}

std::unique_ptr<const Evaluator> RotaryEncoding::PrepareExact(
    const std::vector<Real>& all, DataType type,
    const KernelSet& kernels) const {
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
  auto reference = [spec = spec_, scale = Scale(), columns,
                    turning = std::move(turning)](int64_t position,
                                                  int64_t column, DataType as,
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
                   .scale = Scale()(kSinusoidPrecision),
                   .reference = std::move(reference)},
      type, kernels);
}

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const RotarySpec& spec,
                                         const Output& output) {
  ATTNBIAS_RETURN_IF_ERROR(CheckRotary(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckBias(output, "rotary"));
  ATTNBIAS_RETURN_IF_ERROR(CheckScale(output));
  return std::make_shared<const RotaryEncoding>(spec, output.scale);
}

}  // namespace attnbias
