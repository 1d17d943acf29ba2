// SPDX-License-Identifier: Apache-2.0
// Rotary positions (Su et al. 2021) as an encoding.

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "core/base/executor.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "core/encoding/absolute/rotary_evaluator.h"
#include "core/encoding/absolute/rotary_frequencies.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/sinusoid/float32_angles.h"
#include "core/encoding/sinusoid/sinusoidal_evaluator.h"
#include "core/request/rules.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

constexpr double kLeastFrequency = 1e-30;
constexpr double kMostFrequency = 1e6;

absl::Status CheckColumns(const v1::Rotary& spec) {
  if (RotatingColumns(spec) < 2) {
    return Invalid("rotary.partial_rotary_factor: got ",
                   spec.partial_rotary_factor(),
                   ", want a number in (0, 1] that leaves at least 2 of ",
                   spec.head_dim(), " columns");
  }
  const bool raises_theta = spec.rope_type() == v1::ROPE_TYPE_DYNAMIC ||
                            spec.rope_type() == v1::ROPE_TYPE_NTK;
  if (raises_theta && RotatingColumns(spec) < 4) {
    return Invalid(
        "rotary.head_dim: got 2 columns that turn, want at least 4 "
        "with rope_type ",
        ShortName(spec.rope_type()));
  }
  if (spec.rope_type() == v1::ROPE_TYPE_AXIAL && spec.mrope_section().empty() &&
      RotatingColumns(spec) % 4 != 0) {
    return Invalid("rotary.head_dim: got ", RotatingColumns(spec),
                   " columns that turn, want a multiple of 4 with rope_type "
                   "AXIAL, or mrope_section");
  }
  return absl::OkStatus();
}

absl::Status CheckYarn(const v1::Rotary& spec) {
  if (spec.rope_theta() == 1) {
    return Invalid("rotary.rope_theta: got 1, want more with rope_type YARN");
  }
  const double fast = spec.beta_fast();
  const double slow = spec.beta_slow();
  if (fast < slow) {
    return Invalid("rotary.beta_fast: got ", fast, ", want at least ", slow,
                   " (beta_slow)");
  }
  if (spec.has_mscale() != spec.has_mscale_all_dim()) {
    return Invalid("rotary.", spec.has_mscale() ? "mscale_all_dim" : "mscale",
                   ": not set, want both of mscale and mscale_all_dim, or "
                   "neither");
  }
  if (spec.has_attention_factor() && spec.has_mscale()) {
    return Invalid("rotary.mscale: got ", spec.mscale(),
                   ", want none: attention_factor is given");
  }
  return absl::OkStatus();
}

absl::Status CheckNumbers(
    absl::string_view field,
    const google::protobuf::RepeatedField<double>& numbers, int64_t count) {
  if (numbers.size() == count) return absl::OkStatus();
  return Invalid("rotary.", field, ": got ", numbers.size(), " numbers, want ",
                 count, ", one for each pair of columns that turns");
}

absl::Status CheckLongrope(const v1::Rotary& spec) {
  // ln(original length) divides.
  if (spec.original_max_position_embeddings() < 2) {
    return Invalid("rotary.original_max_position_embeddings: got ",
                   spec.original_max_position_embeddings(),
                   ", want at least 2 with rope_type LONGROPE");
  }
  const int64_t pairs = RotaryPairs(spec);
  ATTNBIAS_RETURN_IF_ERROR(
      CheckNumbers("short_factor", spec.short_factor(), pairs));
  return CheckNumbers("long_factor", spec.long_factor(), pairs);
}

absl::Status CheckLlama3(const v1::Rotary& spec) {
  if (spec.high_freq_factor() > spec.low_freq_factor()) return absl::OkStatus();
  return Invalid("rotary.high_freq_factor: got ", spec.high_freq_factor(),
                 ", want more than ", spec.low_freq_factor(),
                 " (low_freq_factor)");
}

absl::Status CheckSections(const v1::Rotary& spec) {
  const auto& sections = spec.mrope_section();
  if (sections.empty()) return absl::OkStatus();
  const int num_axes = sections.size();
  const int64_t pairs = RotaryPairs(spec);
  for (int axis = 0; axis < num_axes; ++axis) {
    if (sections[axis] < 1 || sections[axis] > pairs) {
      return Invalid("rotary.mrope_section[", axis, "]: got ", sections[axis],
                     ", want an integer in [1, ", pairs, "]");
    }
    if (spec.mrope_order() == v1::MROPE_ORDER_INTERLEAVED && axis > 0 &&
        (int64_t{sections[axis]} - 1) * num_axes + axis >= pairs) {
      return Invalid("rotary.mrope_section[", axis, "]: got ", sections[axis],
                     ", want fewer: every ", num_axes, "th of ", pairs,
                     " pairs is not as many");
    }
  }
  const int64_t sum =
      std::accumulate(sections.begin(), sections.end(), int64_t{0});
  if (sum != pairs) {
    return Invalid("rotary.mrope_section: got ", sum, " pairs in all, want ",
                   pairs);
  }
  return absl::OkStatus();
}

absl::Status CheckGivenFrequencies(const v1::Rotary& spec) {
  const auto& frequencies = spec.inverse_frequencies();
  if (frequencies.empty()) return absl::OkStatus();
  ATTNBIAS_RETURN_IF_ERROR(
      CheckNumbers("inverse_frequencies", frequencies, RotaryPairs(spec)));
  for (int i = 0; i < frequencies.size(); ++i) {
    if (frequencies[i] == 0) continue;
    if (!(frequencies[i] >= kLeastFrequency &&
          frequencies[i] <= kMostFrequency)) {
      return Invalid("rotary.inverse_frequencies[", i, "]: got ",
                     frequencies[i], ", want 0 or a number in [",
                     kLeastFrequency, ", ", kMostFrequency, "]");
    }
  }
  if (std::count(frequencies.begin(), frequencies.end(), 0) ==
      RotaryPairs(spec)) {
    return Invalid(
        "rotary.inverse_frequencies: got zeros alone, want at "
        "least one other number");
  }
  return absl::OkStatus();
}

absl::Status CheckAxial(const v1::Rotary& spec) {
  if (spec.rope_type() == v1::ROPE_TYPE_AXIAL &&
      spec.mrope_order() > v1::MROPE_ORDER_CHUNKED) {
    return Invalid("rotary.mrope_order: got ", ShortName(spec.mrope_order()),
                   ", want none: rope_type AXIAL is an order itself");
  }
  if (spec.mrope_order() != v1::MROPE_ORDER_AXIAL) return absl::OkStatus();
  if (spec.rope_type() == v1::ROPE_TYPE_DEFAULT &&
      spec.inverse_frequencies().empty()) {
    return absl::OkStatus();
  }
  return Invalid(
      "rotary.mrope_order: got AXIAL, want CHUNKED or INTERLEAVED "
      "with rope_type ",
      ShortName(spec.rope_type()),
      spec.inverse_frequencies().empty() ? ""
                                         : " and given inverse_frequencies");
}

// Returns a message of the same numbers, one for all sequence lengths that
// have them: a cache serves them all.
std::shared_ptr<const v1::Rotary> Canonical(const v1::Rotary& given) {
  auto spec = std::make_shared<v1::Rotary>(WithAxes(given));
  if (spec->factor() == 1) spec->clear_factor();
  if (spec->rope_type() == v1::ROPE_TYPE_LONGROPE) {
    if (UsesLongFactor(given)) {
      spec->clear_short_factor();
    } else {
      spec->clear_long_factor();
    }
  }
  if (spec->rope_type() == v1::ROPE_TYPE_DYNAMIC) {
    spec->set_sequence_length(
        std::max(spec->sequence_length(), spec->max_position_embeddings()));
  } else {
    spec->clear_sequence_length();
  }
  return spec;
}

absl::Status Check(const v1::Rotary& spec) {
  ATTNBIAS_RETURN_IF_ERROR(CheckColumns(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckGivenFrequencies(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckSections(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckAxial(spec));
  switch (spec.rope_type()) {
    case v1::ROPE_TYPE_YARN:
      return CheckYarn(spec);
    case v1::ROPE_TYPE_LONGROPE:
      return CheckLongrope(spec);
    case v1::ROPE_TYPE_LLAMA3:
      return CheckLlama3(spec);
    default:
      return absl::OkStatus();
  }
}

float NearestFloat(const Real& value) {
  float nearest;
  RoundReal(value, DataType::kF32, reinterpret_cast<std::byte*>(&nearest));
  return nearest;
}

int64_t WidthOf(const v1::Rotary& spec) {
  return RotaryPairs(spec) * CopiesIn(spec.layout());
}

std::vector<AxisColumns> ColumnsOf(const v1::Rotary& spec) {
  std::vector<AxisColumns> columns;
  const int64_t pairs = RotaryPairs(spec);
  for (int64_t column = 0; column < WidthOf(spec); ++column) {
    const bool paired = spec.layout() == v1::ROTARY_LAYOUT_INTERLEAVED;
    const int64_t axis =
        RotaryAxisOf(spec, paired ? column / 2 : column % pairs);
    if (columns.empty() || columns.back().axis != axis) {
      columns.push_back({axis, {column, column}});
    }
    ++columns.back().columns.end;
  }
  return columns;
}

std::vector<DerivedValue> Derive(const v1::Rotary& spec) {
  const RealCacheScope cache_scope;
  constexpr int kPrecision = 128;
  const auto nearest = [](const Real& value) {
    return mpfr_get_d(value.get(), MPFR_RNDN);
  };
  std::vector<double> frequencies;
  for (const Real& each : InverseFrequencies(spec, kPrecision).All()) {
    frequencies.push_back(spec.angle() == v1::ANGLE_PRECISION_FLOAT32
                              ? NearestFloat(each)
                              : nearest(each));
  }
  std::vector<DerivedValue> derived = {
      {"inverse_frequencies", std::move(frequencies)},
      {"attention_factor",
       {nearest(EffectiveAttentionFactor(spec, kPrecision))}}};
  if (spec.inverse_frequencies().empty()) {
    derived.push_back(
        {"rope_theta", {nearest(EffectiveRopeTheta(spec, kPrecision))}});
  }
  return derived;
}

// Of every element: the attention factor times what was asked for.
RealToAnyPrecision ScaleOf(const v1::Rotary& spec, double scale) {
  return [spec, scale](int precision) {
    Real factor = EffectiveAttentionFactor(spec, precision);
    mpfr_mul_d(factor.get(), factor.get(), scale, MPFR_RNDN);
    return factor;
  };
}

// Of the pairs that turn.
SinusoidColumns TurningColumns(const v1::Rotary& spec) {
  return {2 * TurningPairs(spec), v1::COLUMNS_SINES_COSINES};
}

// Rows [sines | cosines] of those pairs of `all` that turn.
EvaluatorPtr PrepareFloat32(const std::vector<Real>& all,
                            const RealToAnyPrecision& scale, DataType type) {
  std::vector<float> frequencies;
  frequencies.reserve(all.size());
  for (const Real& each : all) {
    if (mpfr_zero_p(each.get()) == 0) frequencies.push_back(NearestFloat(each));
  }
  return PrepareFloat32Angles(std::move(frequencies), scale, type);
}

// The same of exact angles.
EvaluatorPtr PrepareExact(const v1::Rotary& spec, const std::vector<Real>& all,
                          const RealToAnyPrecision& scale, DataType type,
                          const KernelSet& kernels) {
  std::vector<SinusoidFrequency> frequencies;
  std::vector<int64_t> turning;
  frequencies.reserve(TurningPairs(spec));
  turning.reserve(TurningPairs(spec));
  for (size_t pair = 0; pair < all.size(); ++pair) {
    (void)MakingScope::Continues();
    if (mpfr_zero_p(all[pair].get()) != 0) continue;
    frequencies.push_back(FrequencyOf(all[pair]));
    turning.push_back(static_cast<int64_t>(pair));
  }
  const SinusoidColumns columns = TurningColumns(spec);
  auto reference = [spec, scale, columns, turning = std::move(turning)](
                       int64_t position, int64_t column, DataType as,
                       std::byte* out) {
    const SinusoidColumns::Wave wave = columns.WaveAt(column);
    const auto frequency = [&](int precision) {
      return InverseFrequencies(spec, precision).Of(turning[wave.frequency]);
    };
    RoundSinusoid({wave.kind, position, frequency, scale}, as, out);
  };
  return PrepareSinusoids(SinusoidRows{.columns = columns,
                                       .frequencies = std::move(frequencies),
                                       .scale = scale(kSinusoidPrecision),
                                       .reference = std::move(reference)},
                          type, kernels);
}

EvaluatorPtr PrepareRotary(const v1::Rotary& spec, const NumberFormat& format,
                           const KernelSet& kernels) {
  const RealCacheScope cache_scope;
  const std::vector<Real> all =
      InverseFrequencies(spec, kSinusoidPrecision).All();
  std::vector<bool> turns;
  turns.reserve(all.size());
  for (const Real& each : all) turns.push_back(mpfr_zero_p(each.get()) == 0);
  const RealToAnyPrecision scale = ScaleOf(spec, format.scale);
  return PrepareRotary(
      spec.angle() == v1::ANGLE_PRECISION_FLOAT32
          ? PrepareFloat32(all, scale, format.type)
          : PrepareExact(spec, all, scale, format.type, kernels),
      turns, scale(kSinusoidPrecision), spec.layout(), format.type);
}

int64_t EvaluatorBytes(const v1::Rotary& spec) {
  // Copies of the spec, in its frequencies, its scale and on the way there.
  constexpr int64_t kMostCopies = 5;
  const auto listed = int64_t{spec.short_factor_size()} +
                      spec.long_factor_size() + spec.inverse_frequencies_size();
  const int64_t pairs = RotaryPairs(spec);
  int64_t bytes = InverseFrequencies::BytesOfAll(spec, kSinusoidPrecision) +
                  RotaryBytes(pairs) +
                  kMostCopies * listed * int64_t{sizeof(double)};
  if (spec.angle() == v1::ANGLE_PRECISION_FLOAT32) {
    bytes += pairs * int64_t{sizeof(float)};
  } else {
    bytes += SinusoidsBytes(TurningColumns(spec)) +
             TurningPairs(spec) * int64_t{sizeof(int64_t)};
  }
  return bytes;
}

absl::StatusOr<Encoding> DescribeRotary(const v1::Rotary& given,
                                        const Tables& /*tables*/) {
  ATTNBIAS_RETURN_IF_ERROR(Check(given));
  const v1::Rotary spec = WithAxes(given);
  return Encoding{.lanes = 2,
                  .part_names = {"cos", "sin"},
                  .width = WidthOf(spec),
                  .has_columns = true,
                  .domain = kAllPositions,
                  .axis_columns = ColumnsOf(spec),
                  .canonical = Canonical(given),
                  .derive = std::bind_front(&Derive, spec),
                  .evaluator_bytes = EvaluatorBytes(spec),
                  .prepare = std::bind_front(&PrepareRotary, spec)};
}

const EncodingRegistration kRotary(v1::TensorSpec::kRotaryFieldNumber,
                                   &DescribeRotary);

}  // namespace
}  // namespace attnbias
