// SPDX-License-Identifier: Apache-2.0
// Rotary positions (Su et al. 2021) as an encoding.

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/executor.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "core/encoding/absolute/rotary_decay.h"
#include "core/encoding/absolute/rotary_evaluator.h"
#include "core/encoding/absolute/rotary_frequencies.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/sinusoid/float32_angles.h"
#include "core/encoding/sinusoid/sinusoid.h"
#include "core/encoding/sinusoid/sinusoidal_evaluator.h"
#include "core/request/rules.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

constexpr double kLeastFrequency = 1e-30;
constexpr double kMostFrequency = 1e6;

// The contract's default.
constexpr double kRopeTheta = 10000;

// Returns whether an axis has frequencies of the message's own.
bool HasCommonFrequencies(const v1::Rotary& spec) {
  return spec.axes().empty() ||
         !std::ranges::all_of(spec.axes(), &v1::Axis::has_ladder);
}

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

template <typename Numbers>
absl::Status CheckNumbers(absl::string_view field, const Numbers& numbers,
                          int64_t count) {
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

// Every pair has an axis, and every axis a pair.
absl::Status CheckPairAxis(const v1::Rotary& spec) {
  const int64_t pairs = RotaryPairs(spec);
  const int axes = spec.axes_size();
  if (spec.pair_axis().empty()) {
    if (axes == 0 || pairs % axes == 0) return absl::OkStatus();
    return Invalid("rotary.axes: got ", axes, " axes, want a divisor of ",
                   pairs, ", the pairs that turn, or pair_axis");
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckNumbers("pair_axis", spec.pair_axis(), pairs));
  for (int64_t pair = 0; pair < pairs; ++pair) {
    if (RotaryAxisOf(spec, pair) < axes) continue;
    return Invalid("rotary.pair_axis[", pair, "]: got ",
                   RotaryAxisOf(spec, pair), ", want an integer in [0, ",
                   axes - 1, "], one of the axes");
  }
  for (int axis = 0; axis < axes; ++axis) {
    if (std::ranges::count(spec.pair_axis(), axis) > 0) continue;
    return Invalid("rotary.pair_axis: got no pair of axis ", axis,
                   ", want one of each of the ", axes, " axes");
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
  return absl::OkStatus();
}

absl::Status CheckAxis(const v1::Rotary& spec, int axis) {
  const v1::Axis& own = spec.axes(axis);
  if (spec.angle() == v1::ANGLE_PRECISION_FLOAT32 &&
      (own.scale() != 1 || own.offset() != 0 || own.length() != 1 ||
       own.eps() != 0)) {
    return Invalid("rotary.angle: got FLOAT32, want EXACT: axes[", axis,
                   "] has a scale, an offset or a length");
  }
  if (!own.has_ladder() || (spec.rope_type() == v1::ROPE_TYPE_DEFAULT &&
                            spec.inverse_frequencies().empty())) {
    return absl::OkStatus();
  }
  return Invalid("rotary.axes[", axis, "].ladder: got one, want none with ",
                 spec.inverse_frequencies().empty()
                     ? absl::StrCat("rope_type ", ShortName(spec.rope_type()))
                     : "inverse_frequencies");
}

absl::Status CheckAxes(const v1::Rotary& spec) {
  ATTNBIAS_RETURN_IF_ERROR(CheckPairAxis(spec));
  for (int axis = 0; axis < spec.axes_size(); ++axis) {
    ATTNBIAS_RETURN_IF_ERROR(CheckAxis(spec, axis));
  }
  // Checks the axes by Sinusoidal's rules, two columns for each pair.
  if (!spec.axes().empty()) {
    std::vector<int32_t> dims(spec.axes_size());
    for (int64_t pair = 0; pair < RotaryPairs(spec); ++pair) {
      dims[RotaryAxisOf(spec, pair)] += 2;
    }
    v1::Sinusoidal pairs;
    pairs.set_dim(static_cast<int32_t>(2 * RotaryPairs(spec)));
    *pairs.mutable_axes() = spec.axes();
    pairs.mutable_axis_dims()->Add(dims.begin(), dims.end());
    ATTNBIAS_RETURN_IF_ERROR(AxesOf("rotary", pairs).status());
  }
  if (!HasCommonFrequencies(spec) && spec.rope_theta() != kRopeTheta) {
    return Invalid("rotary.rope_theta: got ", spec.rope_theta(),
                   ", want none: every axis has a ladder");
  }
  if (TurningPairs(spec) > 0) return absl::OkStatus();
  return Invalid(
      "rotary.",
      spec.inverse_frequencies().empty() ? "axes" : "inverse_frequencies",
      ": got zeros alone, want at least one other frequency");
}

// Returns a message of the same numbers, one for all sequence lengths that
// have them: a cache serves them all.
std::shared_ptr<const v1::Rotary> Canonical(const v1::Rotary& given) {
  auto spec = std::make_shared<v1::Rotary>(given);
  if (spec->factor() == 1) spec->clear_factor();
  spec->clear_pair_axis();
  for (int pair = 0; pair < given.pair_axis_size(); ++pair) {
    if (RotaryAxisOf(*spec, pair) == given.pair_axis(pair)) continue;
    *spec->mutable_pair_axis() = given.pair_axis();
    break;
  }
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
  ATTNBIAS_RETURN_IF_ERROR(CheckAxes(spec));
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
  if (spec.inverse_frequencies().empty() && HasCommonFrequencies(spec)) {
    derived.push_back(
        {"rope_theta", {nearest(EffectiveRopeTheta(spec, kPrecision))}});
  }
  return derived;
}

// Returns the attention factor times the request's scale.
RealToAnyPrecision ScaleOf(const v1::Rotary& spec, double scale) {
  return [spec, scale](int precision) {
    Real factor = EffectiveAttentionFactor(spec, precision);
    mpfr_mul_d(factor.get(), factor.get(), scale, MPFR_RNDN);
    return factor;
  };
}

// Returns the columns of that many pairs in a row of their own.
SinusoidColumns ColumnsOfPairs(int64_t pairs) {
  return {2 * pairs, v1::COLUMNS_SINES_COSINES};
}

// Returns what the axis of a pair adds to positions.
double OffsetOf(const v1::Rotary& spec, int64_t pair) {
  if (spec.axes().empty()) return 0;
  return spec.axes(static_cast<int>(RotaryAxisOf(spec, pair))).offset();
}

// Fills rows of pairs of one offset, of which `all` has the frequencies.
EvaluatorPtr PrepareExact(const v1::Rotary& spec, const std::vector<Real>& all,
                          const std::vector<int64_t>& pairs, double offset,
                          const RealToAnyPrecision& scale, DataType type,
                          const KernelSet& kernels) {
  const int64_t whole = std::llround(offset);
  const double rest = offset - static_cast<double>(whole);
  const SinusoidColumns columns =
      ColumnsOfPairs(static_cast<int64_t>(pairs.size()));
  std::vector<SinusoidFrequency> frequencies;
  frequencies.reserve(pairs.size());
  for (const int64_t pair : pairs) {
    (void)MakingScope::Continues();
    frequencies.push_back(FrequencyOf(all[pair], rest));
  }
  auto reference = [=](int64_t position, int64_t column, DataType as,
                       std::byte* out) {
    const SinusoidColumns::Wave wave = columns.WaveAt(column);
    const auto frequency = [&](int precision) {
      return InverseFrequencies(spec, precision).Of(pairs[wave.frequency]);
    };
    RoundSinusoid({wave.kind, position + whole, frequency, scale, rest}, as,
                  out);
  };
  return PrepareSinusoids(SinusoidRows{.columns = columns,
                                       .frequencies = std::move(frequencies),
                                       .scale = scale(kSinusoidPrecision),
                                       .reference = std::move(reference),
                                       .whole = whole,
                                       .rest = rest},
                          type, kernels);
}

EvaluatorPtr PrepareRotary(const v1::Rotary& spec, const NumberFormat& format,
                           const KernelSet& kernels) {
  const RealCacheScope cache_scope;
  const std::vector<Real> all =
      InverseFrequencies(spec, kSinusoidPrecision).All();
  const RealToAnyPrecision scale = ScaleOf(spec, format.scale);
  std::map<double, std::vector<int64_t>> by_offset;
  for (int64_t pair = 0; pair < RotaryPairs(spec); ++pair) {
    if (mpfr_zero_p(all[pair].get()) != 0) continue;
    by_offset[OffsetOf(spec, pair)].push_back(pair);
  }
  std::vector<RotaryRows> rows;
  for (auto& [offset, pairs] : by_offset) {
    if (spec.angle() == v1::ANGLE_PRECISION_FLOAT32) {
      std::vector<float> frequencies;
      frequencies.reserve(pairs.size());
      for (const int64_t pair : pairs) {
        frequencies.push_back(NearestFloat(all[pair]));
      }
      rows.push_back(
          {PrepareFloat32Angles(std::move(frequencies), scale, format.type),
           std::move(pairs)});
    } else {
      EvaluatorPtr exact =
          PrepareExact(spec, all, pairs, offset, scale, format.type, kernels);
      rows.push_back({std::move(exact), std::move(pairs)});
    }
  }
  EvaluatorPtr rotary =
      PrepareRotary(std::move(rows), RotaryPairs(spec),
                    scale(kSinusoidPrecision), spec.layout(), format.type);
  return spec.has_decay() ? PrepareDecay(spec, format, std::move(rotary))
                          : std::move(rotary);
}

int64_t EvaluatorBytes(const v1::Rotary& spec) {
  const int64_t pairs = RotaryPairs(spec);
  std::map<double, int64_t> by_offset;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    ++by_offset[OffsetOf(spec, pair)];
  }
  // Copies of the spec, in the frequencies and the scale of each offset, and on
  // the way there.
  const int64_t copies = 3 + 2 * std::ssize(by_offset);
  int64_t listed = int64_t{spec.short_factor_size()} + spec.long_factor_size() +
                   spec.inverse_frequencies_size() + spec.pair_axis_size();
  for (const v1::Axis& axis : spec.axes()) {
    listed += axis.ladder().frequencies().values_size();
  }
  int64_t bytes = InverseFrequencies::BytesOfAll(spec, kSinusoidPrecision) +
                  RotaryBytes(pairs) +
                  copies * listed * int64_t{sizeof(double)};
  if (spec.angle() == v1::ANGLE_PRECISION_FLOAT32) {
    bytes += pairs * int64_t{sizeof(float)};
  } else {
    for (const auto& [offset, count] : by_offset) {
      bytes +=
          SinusoidsBytes(ColumnsOfPairs(std::min(count, TurningPairs(spec))));
    }
    bytes += TurningPairs(spec) * int64_t{sizeof(int64_t)};
  }
  if (spec.has_decay()) bytes += DecayBytes(spec);
  return bytes;
}

absl::StatusOr<Encoding> DescribeRotary(const v1::Rotary& spec,
                                        const Tables& /*tables*/) {
  ATTNBIAS_RETURN_IF_ERROR(Check(spec));
  std::vector<std::string_view> parts = {"cos", "sin"};
  if (spec.has_decay()) parts.push_back("scale");
  return Encoding{
      .lanes = static_cast<int64_t>(parts.size()),
      .part_names = std::move(parts),
      .width = WidthOf(spec),
      .has_columns = true,
      .domain = spec.has_decay() ? DecayDomain(spec.decay()) : kAllPositions,
      .axis_columns = ColumnsOf(spec),
      .canonical = Canonical(spec),
      .derive = std::bind_front(&Derive, spec),
      .evaluator_bytes = EvaluatorBytes(spec),
      .prepare = std::bind_front(&PrepareRotary, spec)};
}

const EncodingRegistration kRotary(v1::TensorSpec::kRotaryFieldNumber,
                                   &DescribeRotary);

}  // namespace
}  // namespace attnbias
