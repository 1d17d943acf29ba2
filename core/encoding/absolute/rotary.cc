// SPDX-License-Identifier: Apache-2.0
// Rotary positions (Su et al. 2021).

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/errors.h"
#include "core/base/executor.h"
#include "core/encoding/absolute/rotary_frequencies.h"
#include "core/encoding/encoding.h"
#include "core/encoding/sinusoid/sinusoid.h"
#include "core/encoding/sinusoid/sinusoidal_evaluator.h"
#include "core/numerics/double_double.h"
#include "core/numerics/real.h"
#include "core/request/rules.h"
#include "core/tensor/data_type.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

constexpr double kRopeTheta = 10000;

// Returns true if an axis uses the message's own frequencies.
bool HasCommonFrequencies(const v1::Rotary& spec) {
  return spec.axes().empty() || !std::ranges::all_of(spec.axes(), &v1::Axis::has_ladder);
}

absl::Status CheckColumns(const v1::Rotary& spec) {
  if (RotatingColumns(spec) < 2) {
    return Invalid("rotary.partial_rotary_factor: got ", spec.partial_rotary_factor(),
                   ", want a number in (0, 1] that rotates at least 2 of ", spec.head_dim(),
                   " columns");
  }
  if (!RaisesRopeTheta(spec) || RotatingColumns(spec) >= 4) {
    return absl::OkStatus();
  }
  return Invalid("rotary.head_dim: got 2 rotated columns, want at least 4 with dynamic or ntk");
}

absl::Status CheckYarn(const v1::Rotary& spec) {
  if (spec.rope_theta() == 1) {
    return Invalid("rotary.rope_theta: got 1, want more than 1 with yarn");
  }
  const v1::Yarn& own = spec.yarn();
  if (own.beta_fast() < own.beta_slow()) {
    return Invalid("rotary.yarn.beta_fast: got ", own.beta_fast(), ", want at least ",
                   own.beta_slow(), " (beta_slow)");
  }
  return absl::OkStatus();
}

template <typename Numbers>
absl::Status CheckNumbers(absl::string_view field, const Numbers& numbers, int64_t count) {
  if (numbers.size() == count) return absl::OkStatus();
  return Invalid("rotary.", field, ": got ", numbers.size(), " numbers, want ", count,
                 ", one for each rotated pair of columns");
}

absl::Status CheckLongrope(const v1::Rotary& spec) {
  const v1::Longrope& own = spec.longrope();
  const int64_t pairs = RotaryPairs(spec);
  ATTNBIAS_RETURN_IF_ERROR(CheckNumbers("longrope.short_factor", own.short_factor(), pairs));
  return CheckNumbers("longrope.long_factor", own.long_factor(), pairs);
}

absl::Status CheckLlama3(const v1::Llama3& own) {
  if (own.high_freq_factor() > own.low_freq_factor()) return absl::OkStatus();
  return Invalid("rotary.llama3.high_freq_factor: got ", own.high_freq_factor(),
                 ", want more than ", own.low_freq_factor(), " (low_freq_factor)");
}

// Checks that every pair has an axis, and every axis a pair.
absl::Status CheckPairAxis(const v1::Rotary& spec) {
  const int64_t pairs = RotaryPairs(spec);
  const int axes = spec.axes_size();
  if (spec.pair_axis().empty()) {
    if (axes == 0 || pairs % axes == 0) return absl::OkStatus();
    return Invalid("rotary.axes: got ", axes, " axes, want a divisor of ", pairs,
                   " (the number of rotated pairs); or set pair_axis");
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckNumbers("pair_axis", spec.pair_axis(), pairs));
  for (int64_t pair = 0; pair < pairs; ++pair) {
    if (RotaryAxisOf(spec, pair) < axes) continue;
    return Invalid("rotary.pair_axis[", pair, "]: got ", RotaryAxisOf(spec, pair),
                   ", want an integer in [0, ", axes - 1, "], one of the axes");
  }
  for (int axis = 0; axis < axes; ++axis) {
    if (std::ranges::count(spec.pair_axis(), axis) > 0) continue;
    return Invalid("rotary.pair_axis: got no pair for axis ", axis,
                   ", want at least one for each of the ", axes, " axes");
  }
  return absl::OkStatus();
}

absl::Status CheckGivenFrequencies(const v1::Rotary& spec) {
  const auto& frequencies = spec.inverse_frequencies();
  if (frequencies.empty()) return absl::OkStatus();
  if (const auto extension = FieldIn("extension", spec); extension.ok()) {
    return Invalid("rotary.inverse_frequencies: got ", frequencies.size(),
                   " numbers, want none with ", (*extension)->name());
  }
  return CheckNumbers("inverse_frequencies", frequencies, RotaryPairs(spec));
}

// Returns the axes according to Sinusoidal's rules, with two columns per pair.
absl::StatusOr<std::vector<SinusoidAxis>> PairAxesOf(const v1::Rotary& spec) {
  ATTNBIAS_RETURN_IF_ERROR(CheckPairAxis(spec));
  const int64_t pairs = RotaryPairs(spec);
  v1::Sinusoidal sinusoidal;
  sinusoidal.set_dim(static_cast<int32_t>(2 * pairs));
  *sinusoidal.mutable_axes() = spec.axes();
  auto& dims = *sinusoidal.mutable_axis_dims();
  dims.Resize(spec.axes_size(), 0);
  for (int64_t pair = 0; pair < pairs && !dims.empty(); ++pair) {
    dims[static_cast<int>(RotaryAxisOf(spec, pair))] += 2;
  }
  return AxesOf("rotary", sinusoidal);
}

absl::Status CheckAxes(const Rotation& rotation) {
  const v1::Rotary& spec = rotation.spec;
  const auto extension = FieldIn("extension", spec);
  for (int axis = 0; axis < spec.axes_size(); ++axis) {
    if (spec.angle() == v1::ANGLE_PRECISION_FLOAT32 &&
        rotation.axes[axis].stretch != AxisStretch()) {
      return Invalid("rotary.angle: got FLOAT32, want EXACT: axes[", axis,
                     "] has a scale, an offset or a length");
    }
    if (!HasLadder(spec, axis)) continue;
    if (extension.ok() || !spec.inverse_frequencies().empty()) {
      return Invalid("rotary.axes[", axis, "].ladder: got a ladder, want none with ",
                     extension.ok() ? (*extension)->name() : "inverse_frequencies",
                     "; or use ladder.frequencies instead of that field");
    }
  }
  if (!HasCommonFrequencies(spec) && spec.rope_theta() != kRopeTheta) {
    return Invalid("rotary.rope_theta: got ", spec.rope_theta(),
                   ", want none: every axis has a ladder");
  }
  if (RotatingPairs(spec) > 0) return absl::OkStatus();
  return Invalid("rotary.", spec.inverse_frequencies().empty() ? "axes" : "inverse_frequencies",
                 ": got only zeros, want at least one nonzero frequency");
}

absl::Status CheckExtension(const v1::Rotary& spec) {
  if (spec.has_yarn()) return CheckYarn(spec);
  if (spec.has_longrope()) return CheckLongrope(spec);
  return spec.has_llama3() ? CheckLlama3(spec.llama3()) : absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Rotation>> RotationOf(const v1::Rotary& spec) {
  ATTNBIAS_RETURN_IF_ERROR(CheckColumns(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckGivenFrequencies(spec));
  auto rotation = std::make_shared<Rotation>();
  rotation->spec = spec;
  ATTNBIAS_ASSIGN_OR_RETURN(rotation->axes, PairAxesOf(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckAxes(*rotation));
  ATTNBIAS_RETURN_IF_ERROR(CheckExtension(spec));
  std::vector<int32_t> counts(rotation->axes.size());
  for (int32_t pair = 0; pair < RotaryPairs(spec); ++pair) {
    const int64_t axis = RotaryAxisOf(spec, pair);
    rotation->places.push_back(HasLadder(spec, axis) ? counts[axis]++ : pair);
  }
  return rotation;
}

// Returns the same message for all sequence lengths that produce the same values, so that they
// share a band.
std::shared_ptr<const v1::Rotary> Canonical(const v1::Rotary& given) {
  auto spec = std::make_shared<v1::Rotary>(given);
  spec->clear_pair_axis();
  for (int pair = 0; pair < given.pair_axis_size(); ++pair) {
    if (RotaryAxisOf(*spec, pair) == given.pair_axis(pair)) continue;
    *spec->mutable_pair_axis() = given.pair_axis();
    break;
  }
  if (spec->has_longrope()) {
    v1::Longrope& own = *spec->mutable_longrope();
    if (UsesLongFactor(own)) {
      own.clear_short_factor();
    } else {
      own.clear_long_factor();
    }
    own.clear_sequence_length();
  } else if (spec->has_dynamic()) {
    v1::Dynamic& own = *spec->mutable_dynamic();
    own.set_sequence_length(std::max(own.sequence_length(), own.max_position_embeddings()));
  }
  return spec;
}

// Lanes 0 to 2: cosines, sines and xPos's scale.
constexpr int64_t kCosLane = 0;
constexpr int64_t kScaleLane = 2;

// Size of the pieces in which rows are laid out; fits in a core's private cache.
constexpr int64_t kPairPieceBytes = int64_t{128} << 10;

int64_t CopiesIn(v1::RotaryLayout layout) { return layout == v1::ROTARY_LAYOUT_COMPACT ? 1 : 2; }

void WriteRotaryRow(v1::RotaryLayout layout, DataType type, const std::byte* pairs, int64_t count,
                    std::byte* out) {
  const int64_t size = count * SizeOf(type);
  if (layout == v1::ROTARY_LAYOUT_INTERLEAVED) {
    return WithBitsOf(type, [=]<typename Bits>(Bits /*zero*/) {
      for (int64_t i = 0; i < count; ++i) {
        Bits pair[2];
        std::memcpy(&pair[0], pairs + i * sizeof(Bits), sizeof(Bits));
        pair[1] = pair[0];
        std::memcpy(out + i * sizeof(pair), pair, sizeof(pair));
      }
    });
  }
  std::memcpy(out, pairs, size);
  if (layout == v1::ROTARY_LAYOUT_HALF) std::memcpy(out + size, pairs, size);
}

// Returns the maximum number of bytes that PrepareRotary's result needs in addition to its rows. A
// piece holds at least one row.
int64_t RotaryBytes(int64_t pairs) { return kPairPieceBytes + 2 * pairs * int64_t{sizeof(double)}; }

// Rearranges the pairs' [sines | cosines] rows into rotary tables: one part with cosines and one
// with sines, where each frequency occurs once or twice per row.
EvaluatorPtr PrepareRotary(EvaluatorPtr rows, int64_t pairs, v1::RotaryLayout layout,
                           DataType type) {
  return MakeEvaluator([rows = std::move(rows), pairs, layout, type](
                           const Block& block, std::byte* out, int64_t lane_stride_bytes) {
    const int64_t half_bytes = pairs * SizeOf(type);
    const int64_t row_bytes = CopiesIn(layout) * half_bytes;
    const int64_t most = std::max<int64_t>(kPairPieceBytes / (2 * half_bytes), 1);
    std::vector<std::byte> piece(std::min(most, block.span.size()) * 2 * half_bytes);
    for (int64_t first = block.span.begin; first < block.span.end;) {
      const int64_t end = std::min(first + most, block.span.end);
      rows->Fill({{0, 1}, {first, end}}, piece.data(), 0);
      for (int64_t lane = block.lanes.begin; lane < block.lanes.end; ++lane) {
        const std::byte* from = piece.data() + (lane == kCosLane ? half_bytes : 0);
        std::byte* to = out + (lane - block.lanes.begin) * lane_stride_bytes +
                        (first - block.span.begin) * row_bytes;
        for (int64_t row = first; row < end; ++row) {
          WriteRotaryRow(layout, type, from, pairs, to);
          from += 2 * half_bytes;
          to += row_bytes;
        }
      }
      first = end;
    }
  });
}

// Decays stay within a factor of 2^kMostDecayExponent of 1, where double-doubles can represent
// them.
constexpr double kMostDecayExponent = 512;

// Additional bits for a decay's exponent, since exponentiation multiplies its error by up to 2^9.
constexpr int kDecayGuardBits = 16;

// Returns ((pair / pairs + gamma) / (1 + gamma))^(steps / scale_base) to within a relative error of
// 4 x 2^-p.
Real DecayOf(const v1::Decay& decay, int64_t pairs, int64_t pair, int64_t steps, int precision) {
  precision += kDecayGuardBits;
  const Real base =
      (Real(pair, precision) / pairs + decay.gamma()) / (Real(decay.gamma(), precision) + 1);
  return Pow(base, Real(steps, precision) / decay.scale_base());
}

// Returns the positions at which double-doubles can represent every decay.
Range DomainOf(const v1::Decay& decay) {
  const double steepest = std::log2(1 + decay.gamma()) - std::log2(decay.gamma());
  const auto reach = static_cast<int64_t>(std::min(
      kMostDecayExponent * decay.scale_base() / steepest, static_cast<double>(2 * kMaxPosition)));
  return {std::max(decay.center() - reach, kAllPositions.begin),
          std::min(decay.center() + reach + 1, kAllPositions.end)};
}

// Writes a decay, computed from its definition.
void RoundDecay(const v1::Decay& decay, int64_t pairs, int64_t pair, int64_t steps,
                const NumberFormat& format, std::byte* out) {
  RoundByRefining(
      [&](Real& value, Real& bound) {
        const Real power = DecayOf(decay, pairs, pair, steps, value.precision());
        mpfr_mul_d(value.get(), power.get(), format.scale, MPFR_RNDN);
        SetRoundingBound(value, 3, bound);
      },
      format.type, out);
}

// Adds xPos's third part (Sun et al. 2022) to a rotary table: the decay, which multiplies queries
// and divides keys.
EvaluatorPtr AddDecay(const v1::Rotary& spec, const NumberFormat& format, EvaluatorPtr rotary) {
  const int64_t pairs = RotaryPairs(spec);
  // Logarithm of each pair's decay over one step.
  std::vector<DoubleDouble> logs(pairs);
  for (int64_t pair = 0; pair < pairs && ComputeScope::Continues(); ++pair) {
    logs[pair] = ToDoubleDouble(Log(DecayOf(spec.decay(), pairs, pair, 1, kSinusoidPrecision)));
  }
  return MakeEvaluator([decay = spec.decay(), layout = spec.layout(), format, pairs,
                        logs = std::move(logs), rotary = std::move(rotary),
                        rounding = ScaledRounding(format.scale, format.type)](
                           const Block& block, std::byte* out, int64_t lane_stride_bytes) {
    Block tables = block;
    tables.lanes.end = std::min(block.lanes.end, kScaleLane);
    if (tables.lanes.size() > 0) rotary->Fill(tables, out, lane_stride_bytes);
    if (block.lanes.end <= kScaleLane) return;
    out += (kScaleLane - block.lanes.begin) * lane_stride_bytes;
    const int64_t size = SizeOf(format.type);
    std::vector<std::byte> row(pairs * size);
    for (int64_t at = block.span.begin; at < block.span.end; ++at) {
      const int64_t steps = at - decay.center();
      for (int64_t pair = 0; pair < pairs; ++pair) {
        const Estimate power = ExpOf(logs[pair] * static_cast<double>(steps));
        // Doubling the bound covers the error in the exponent, which is below 2^-90.
        if (rounding.TryRound(power.value, 2 * power.bound, &row[pair * size])) continue;
        RoundDecay(decay, pairs, pair, steps, format, &row[pair * size]);
      }
      WriteRotaryRow(layout, format.type, row.data(), pairs, out);
      out += pairs * CopiesIn(layout) * size;
    }
  });
}

float NearestFloat(const Real& value) {
  float nearest;
  RoundReal(value, DataType::kF32, reinterpret_cast<std::byte*>(&nearest));
  return nearest;
}

int64_t WidthOf(const v1::Rotary& spec) { return RotaryPairs(spec) * CopiesIn(spec.layout()); }

std::vector<AxisColumns> ColumnsOf(const v1::Rotary& spec) {
  std::vector<int64_t> axes;
  const int64_t pairs = RotaryPairs(spec);
  const bool paired = spec.layout() == v1::ROTARY_LAYOUT_INTERLEAVED;
  for (int64_t column = 0; column < WidthOf(spec); ++column) {
    axes.push_back(RotaryAxisOf(spec, paired ? column / 2 : column % pairs));
  }
  return RunsOf(axes);
}

std::vector<DerivedValue> Derive(const Rotation& rotation) {
  const v1::Rotary& spec = rotation.spec;
  constexpr int kPrecision = 128;
  std::vector<double> frequencies;
  InverseFrequencies(rotation, kPrecision).ForEach([&](const Real& each) {
    frequencies.push_back(spec.angle() == v1::ANGLE_PRECISION_FLOAT32 ? NearestFloat(each)
                                                                      : each.ToDouble());
  });
  std::vector<DerivedValue> derived = {
      {"inverse_frequencies", std::move(frequencies)},
      {"attention_factor", {EffectiveAttentionFactor(spec, kPrecision).ToDouble()}}};
  if (spec.inverse_frequencies().empty() && HasCommonFrequencies(spec)) {
    derived.push_back({"rope_theta", {EffectiveRopeTheta(spec, kPrecision).ToDouble()}});
  }
  return derived;
}

SinusoidColumns ColumnsOfPairs(int64_t pairs) { return {2 * pairs, v1::COLUMNS_SINES_COSINES}; }

double OffsetOf(const Rotation& rotation, int64_t pair) {
  return rotation.axes[RotaryAxisOf(rotation.spec, pair)].stretch.offset;
}

// Describes the rows for `pairs`, whose frequencies are in `all`.
SinusoidRows RowsOfPairs(const std::shared_ptr<const Rotation>& rotation,
                         const std::vector<Real>& all, const std::vector<int64_t>& pairs,
                         double offset, const RealToAnyPrecision& scale) {
  const auto at = [&](int64_t i) -> const Real& { return all[pairs[i]]; };
  auto exact = [rotation, pairs](int64_t i, int precision) {
    return InverseFrequencies(*rotation, precision).Of(pairs[i]);
  };
  return RowsOf(ColumnsOfPairs(std::ssize(pairs)), offset, at, std::move(exact), scale);
}

// Returns the rows of all pairs. Pairs that do not rotate have sine 0 and cosine `scale`.
EvaluatorPtr Joined(std::vector<RowPart> parts, int64_t pairs, const Real& scale, DataType type) {
  std::array<std::byte, sizeof(double)> cosine;
  RoundReal(scale, type, cosine.data());
  std::vector<std::byte> resting(2 * pairs * SizeOf(type));
  Repeat(cosine.data(), SizeOf(type), pairs, resting.data() + pairs * SizeOf(type));
  return JoinRows(std::move(parts), std::move(resting), type);
}

// Prepares the tables either at integer positions, with `kernels`, or at the doubles in
// `positions`; the other argument is null.
EvaluatorPtr PrepareTables(const std::shared_ptr<const Rotation>& rotation,
                           const NumberFormat& format, const KernelSet* kernels,
                           const RealPositionsPtr& positions) {
  const v1::Rotary& spec = rotation->spec;
  std::vector<Real> all;
  all.reserve(RotaryPairs(spec));
  InverseFrequencies(*rotation, kSinusoidPrecision).ForEach([&all](Real each) {
    all.push_back(std::move(each));
  });
  // Returns the attention factor times the request's scale.
  const RealToAnyPrecision scale = [rotation, asked = format.scale](int bits) {
    return EffectiveAttentionFactor(rotation->spec, bits) * asked;
  };
  const int64_t pairs = RotaryPairs(spec);
  // Pairs by offset and, if positions are doubles, by axis.
  std::map<std::pair<double, int64_t>, std::vector<int64_t>> sets;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    if (all[pair].is_zero()) continue;
    const int64_t axis = positions == nullptr ? 0 : RotaryAxisOf(spec, pair);
    sets[{OffsetOf(*rotation, pair), axis}].push_back(pair);
  }
  std::vector<RowPart> parts;
  for (const auto& [place, own] : sets) {
    const auto& [offset, axis] = place;
    EvaluatorPtr rows;
    if (spec.angle() == v1::ANGLE_PRECISION_FLOAT32) {
      std::vector<float> frequencies;
      frequencies.reserve(own.size());
      for (const int64_t pair : own) {
        frequencies.push_back(NearestFloat(all[pair]));
      }
      rows = PrepareFloat32Angles(std::move(frequencies), scale, format.type);
    } else if (positions != nullptr) {
      rows = PrepareListed(RowsOfPairs(rotation, all, own, 0, scale),
                           {positions, static_cast<size_t>(axis), offset}, format.type);
    } else {
      rows =
          PrepareSinusoids(RowsOfPairs(rotation, all, own, offset, scale), format.type, *kernels);
    }
    // The rows are [sines | cosines], like the joined rows.
    std::vector<int64_t> columns = own;
    for (const int64_t pair : own) columns.push_back(pairs + pair);
    parts.push_back({std::move(rows), std::ssize(columns)});
    parts.back().PutAt(columns);
  }
  EvaluatorPtr rotary =
      PrepareRotary(Joined(std::move(parts), pairs, scale(kSinusoidPrecision), format.type), pairs,
                    spec.layout(), format.type);
  if (!spec.has_decay()) return rotary;
  return AddDecay(spec, format, std::move(rotary));
}

int64_t EvaluatorBytes(const Rotation& rotation) {
  const v1::Rotary& spec = rotation.spec;
  const int64_t pairs = RotaryPairs(spec);
  const int64_t rotating = RotatingPairs(spec);
  // Per pair: a frequency, a decay and its element, and entries in the lists of pairs, columns and
  // runs, including the memory for growing these lists.
  constexpr int64_t kPairBytes =
      Real::BytesOf(kSinusoidPrecision + kFrequencyGuardBits) +
      int64_t{sizeof(DoubleDouble) + 8 * sizeof(int64_t) + 6 * sizeof(RowPart::Run)};
  int64_t bytes = RotaryBytes(pairs) + JoinedBytes(2 * pairs) + pairs * kPairBytes;
  if (spec.angle() == v1::ANGLE_PRECISION_FLOAT32) return bytes;
  std::map<double, int64_t> by_offset;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    ++by_offset[OffsetOf(rotation, pair)];
  }
  for (const auto& [offset, count] : by_offset) {
    bytes += SinusoidsBytes(std::min(count, rotating));
  }
  return bytes;
}

// Describes tables whose columns depend on all axes.
absl::StatusOr<Encoding> DescribeSumsOfAxes(const v1::Rotary& spec, const Tables& tables) {
  const auto refuse = [](absl::string_view field, const auto& got) {
    return Invalid("rotary.", field, ": got ", got, ", want none with frequency_matrix");
  };
  ATTNBIAS_RETURN_IF_ERROR(CheckColumns(spec));
  if (const auto extension = FieldIn("extension", spec); extension.ok()) {
    return refuse((*extension)->name(), "a value");
  }
  if (spec.rope_theta() != kRopeTheta) {
    return refuse("rope_theta", spec.rope_theta());
  }
  if (spec.has_decay()) return refuse("decay", "a value");
  if (spec.angle() != v1::ANGLE_PRECISION_EXACT) {
    return refuse("angle", ShortName(spec.angle()));
  }
  const int64_t pairs = RotaryPairs(spec);
  ATTNBIAS_ASSIGN_OR_RETURN(
      const FrequencyMatrixPtr matrix,
      FrequencyMatrixOf("rotary", spec.axes(), spec.frequency_matrix(), pairs, tables));
  return Encoding{.lanes = 2,
                  .part_names = {"cos", "sin"},
                  .width = WidthOf(spec),
                  .has_columns = true,
                  .domain = kAllPositions,
                  .evaluator_bytes = SummedBytes(*matrix) + RotaryBytes(pairs),
                  .prepare_reals =
                      [matrix, pairs, layout = spec.layout()](const NumberFormat& format,
                                                              const RealPositionsPtr& positions) {
                        return PrepareRotary(
                            PrepareSummed(matrix, ColumnsOfPairs(pairs), positions, format), pairs,
                            layout, format.type);
                      },
                  .axis_offsets = OffsetsOf(matrix->axes)};
}

absl::StatusOr<Encoding> DescribeRotary(const v1::Rotary& spec, const Tables& tables) {
  if (spec.has_frequency_matrix()) return DescribeSumsOfAxes(spec, tables);
  ATTNBIAS_ASSIGN_OR_RETURN(const std::shared_ptr<const Rotation> rotation, RotationOf(spec));
  std::vector<std::string_view> parts = {"cos", "sin"};
  if (spec.has_decay()) parts.push_back("scale");
  Encoding encoding = {.lanes = static_cast<int64_t>(parts.size()),
                       .part_names = std::move(parts),
                       .width = WidthOf(spec),
                       .has_columns = true,
                       .domain = spec.has_decay() ? DomainOf(spec.decay()) : kAllPositions,
                       .axis_columns = ColumnsOf(spec),
                       .canonical = Canonical(spec),
                       .derive = [rotation] { return Derive(*rotation); },
                       .evaluator_bytes = EvaluatorBytes(*rotation),
                       .prepare =
                           [rotation](const NumberFormat& format, const KernelSet& kernels) {
                             return PrepareTables(rotation, format, &kernels, nullptr);
                           }};
  if (spec.has_decay() || spec.angle() == v1::ANGLE_PRECISION_FLOAT32) {
    return encoding;
  }
  encoding.prepare_reals = [rotation](const NumberFormat& format,
                                      const RealPositionsPtr& positions) {
    return PrepareTables(rotation, format, nullptr, positions);
  };
  encoding.axis_offsets = OffsetsOf(rotation->axes);
  return encoding;
}

const EncodingRegistration kRotary(v1::TensorSpec::kRotaryFieldNumber, &DescribeRotary);

}  // namespace
}  // namespace attnbias
