// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/sinusoid/listed_sinusoids.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/errors.h"
#include "core/base/executor.h"
#include "core/encoding/common/scaled_rounding.h"
#include "core/encoding/common/table_checks.h"
#include "core/numerics/turn.h"

namespace attnbias {
namespace {

constexpr double kLeastWeight = 1e-30;
constexpr double kMostWeight = 1e6;

// An angle as an exact fraction. Its numerator is a multiple of 2^-911 and
// below 2^208.
struct AngleFraction {
  Real over{0, 1152};
  Real under{1, 1152};
};

// Returns the sum of the angles of a pair over all axes.
AngleFraction SumOf(const FrequencyMatrix& matrix,
                    absl::Span<const BinaryPosition> at, int64_t pair) {
  AngleFraction sum;
  // Each is exact: a product of 62, 53 and 53 bits, and a sum of 193.
  Real term(256);
  for (size_t axis = 0; axis < at.size(); ++axis) {
    const double weight = matrix.weights.At(static_cast<int64_t>(axis), pair);
    const AxisStretch& stretch = matrix.axes[axis].stretch;
    mpfr_set_si_2exp(term.get(), at[axis].count, at[axis].exponent, MPFR_RNDN);
    const Real length = Real(stretch.length, 256) + stretch.eps;
    sum.over *= length;
    sum.over += sum.under * (term * weight * stretch.scale);
    sum.under *= length;
  }
  return sum;
}

// What an evaluator of listed rows needs to know of them.
struct ListedRows {
  SinusoidColumns columns;
  std::vector<ListedAxis> axes;
  // [sines, axes]; a turn whose limbs are 0 is 0.
  std::vector<FloatingTurn> turns;
  Real scale;
  // Writes the element at a column and the positions on all axes, of an angle
  // that is not 0.
  std::function<void(absl::Span<const BinaryPosition> at, int64_t column,
                     DataType type, std::byte* out)>
      reference;
  // Null if each column depends on one axis.
  FrequencyMatrixPtr matrix = nullptr;
};

class ListedSinusoids final : public Evaluator {
 public:
  ListedSinusoids(ListedRows rows, DataType type)
      : rows_(std::move(rows)), rounding_(rows_.scale, type), type_(type) {
    RoundReal(rows_.scale, type, scale_);
  }

  void Fill(const Block& block, std::byte* out,
            int64_t /*lane_stride_bytes*/) const override {
    std::vector<BinaryPosition> at(rows_.axes.size());
    for (int64_t row = block.span.begin; row < block.span.end; ++row) {
      for (size_t i = 0; i < at.size(); ++i) {
        const auto& [positions, axis, offset] = rows_.axes[i];
        const std::vector<double>& list = (*positions)[axis];
        const double position =
            list.empty() ? static_cast<double>(row) : list[row];
        at[i] = BinarySum(position, offset).value_or(BinaryPosition());
      }
      FillRow(at, out);
      out += rows_.columns.width * SizeOf(type_);
    }
  }

 private:
  void FillRow(absl::Span<const BinaryPosition> at, std::byte* row) const {
    const SinusoidColumns& columns = rows_.columns;
    std::array<TurnTerm, kMostTurnTerms> terms;
    for (int64_t i = 0; i < columns.sines; ++i) {
      if (!MakingScope::Continues()) return;
      size_t count = 0;
      for (size_t axis = 0; axis < at.size(); ++axis) {
        const FloatingTurn& turns = rows_.turns[i * at.size() + axis];
        if (at[axis].count == 0 || turns.limbs.back() == 0) continue;
        terms[count++] = {turns, at[axis]};
      }
      SinCos both;
      if (count > 0) {
        both = SinCosOf(AngleOf(absl::MakeConstSpan(terms.data(), count)));
      }
      if (count > 1 && both.error >= 1 &&
          SumOf(*rows_.matrix, at, i).over.is_zero()) {
        count = 0;
      }
      const auto write = [&](int64_t column, DoubleDouble value,
                             const std::byte* at_zero) {
        std::byte* out = row + column * SizeOf(type_);
        if (count == 0) {
          std::memcpy(out, at_zero, SizeOf(type_));
        } else if (!rounding_.TryRoundRelative(value, both.error, out)) {
          rows_.reference(at, column, type_, out);
        }
      };
      const int64_t first = i * columns.pair_stride;
      write(columns.sin_offset + first, both.sin, zero_);
      if (i < columns.cosines) {
        write(columns.cos_offset + first, both.cos, scale_);
      }
    }
  }

  const ListedRows rows_;
  const ScaledRounding rounding_;
  const DataType type_;
  // The elements of an angle that is 0.
  const std::byte zero_[sizeof(double)] = {};
  std::byte scale_[sizeof(double)] = {};
};

// Returns [pairs, axes], by position.
std::vector<FloatingTurn> TurnsOf(const FrequencyMatrix& matrix) {
  std::vector<FloatingTurn> turns;
  turns.reserve(matrix.weights.size());
  for (int64_t pair = 0; pair < matrix.weights.columns(); ++pair) {
    // Rows that are not wanted are not looked at.
    (void)MakingScope::Continues();
    for (int64_t axis = 0; axis < matrix.weights.rows(); ++axis) {
      FloatingTurn& own = turns.emplace_back();
      const double weight = matrix.weights.At(axis, pair);
      if (weight == 0) continue;
      own = FrequencyOf(
                StretchFactor(matrix.axes[axis].stretch, kSinusoidPrecision) *
                weight)
                .turns_per_position;
    }
  }
  return turns;
}

// Reduces so many radians, which are as exact as a position is.
ReducedAngle Reduced(float angle) {
  static const FloatingTurn radian = [] {
    const RealCacheScope cache_scope;
    return FrequencyOf(Real(1, kSinusoidPrecision)).turns_per_position;
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
    SinCos both = {{}, {}, 1};
    if (angle != 0) both = SinCosOf(Reduced(angle));
    const auto write = [&](Kind kind, DoubleDouble value, std::byte* out) {
      if (rounding_.TryRoundRelative(value, both.error, out)) return;
      Resolve(kind, angle, out);
    };
    write(Kind::kSine, both.sin, sine);
    write(Kind::kCosine, both.cos, cosine);
  }

  void Resolve(SinusoidColumns::Kind kind, float angle, std::byte* out) const {
    const auto exact = [angle](int precision) {
      return Real(angle, precision);
    };
    RoundSinusoid({kind, angle == 0 ? 0 : 1, exact, scale_}, type_, out);
  }

  const std::vector<float> inverse_frequencies_;
  const RealToAnyPrecision scale_;
  const ScaledRounding rounding_;
  const DataType type_;
};

}  // namespace

EvaluatorPtr PrepareListed(SinusoidRows rows, ListedAxis axis, DataType type) {
  ListedRows listed = {
      .columns = rows.columns,
      .axes = {std::move(axis)},
      .turns = {},
      .scale = std::move(rows.scale),
      .reference = [one = std::move(rows.reference)](
                       absl::Span<const BinaryPosition> at, int64_t column,
                       DataType to,
                       std::byte* out) { one(at.front(), column, to, out); }};
  for (const SinusoidFrequency& each : rows.frequencies) {
    listed.turns.push_back(each.turns_per_position);
  }
  return std::make_unique<ListedSinusoids>(std::move(listed), type);
}

absl::StatusOr<FrequencyMatrixPtr> FrequencyMatrixOf(
    absl::string_view encoding,
    const google::protobuf::RepeatedPtrField<v1::Axis>& axes,
    const v1::TableRef& matrix, int64_t pairs, const Tables& tables) {
  v1::Sinusoidal plain;
  const int count = std::max(axes.size(), 1);
  plain.set_dim(2 * count);
  *plain.mutable_axes() = axes;
  for (int axis = 0; axis < axes.size(); ++axis) {
    if (!axes[axis].has_ladder()) continue;
    return Invalid(encoding, ".axes[", axis,
                   "].ladder: got one, want none with frequency_matrix");
  }
  ATTNBIAS_ASSIGN_OR_RETURN(std::vector<SinusoidAxis> described,
                            AxesOf(encoding, plain));
  const std::string field = absl::StrCat(encoding, ".frequency_matrix");
  const Table table = *tables.Get(matrix);
  ATTNBIAS_RETURN_IF_ERROR(
      CheckShape(field, table, {{count, "axes"}, {pairs, "pairs"}}));
  for (int64_t pair = 0; pair < pairs; ++pair) {
    for (int64_t axis = 0; axis < count; ++axis) {
      const double weight = table.At(axis, pair);
      const double magnitude = std::fabs(weight);
      if (magnitude == 0) continue;
      if (magnitude >= kLeastWeight && magnitude <= kMostWeight) continue;
      return Invalid(field, "[", axis, ", ", pair, "]: got ", weight,
                     ", want 0 or a number of magnitude in [", kLeastWeight,
                     ", ", kMostWeight, "]");
    }
  }
  return std::make_shared<const FrequencyMatrix>(
      FrequencyMatrix{.axes = std::move(described), .weights = table});
}

int64_t SummedBytes(const FrequencyMatrix& matrix) {
  return matrix.weights.size() * int64_t{sizeof(FloatingTurn)};
}

EvaluatorPtr PrepareSummed(const FrequencyMatrixPtr& matrix,
                           const SinusoidColumns& columns,
                           const RealPositionsPtr& positions,
                           const NumberFormat& format) {
  const RealCacheScope cache_scope;
  ListedRows rows = {.columns = columns,
                     .axes = {},
                     .turns = TurnsOf(*matrix),
                     .scale = Real(format.scale, kSinusoidPrecision),
                     .reference = nullptr,
                     .matrix = matrix};
  for (size_t axis = 0; axis < matrix->axes.size(); ++axis) {
    rows.axes.push_back({positions, axis, matrix->axes[axis].stretch.offset});
  }
  rows.reference = [matrix, columns, scale = format.scale](
                       absl::Span<const BinaryPosition> at, int64_t column,
                       DataType type, std::byte* out) {
    const SinusoidColumns::Wave wave = columns.WaveAt(column);
    const AngleFraction sum = SumOf(*matrix, at, wave.frequency);
    // No sum loses digits here.
    const RealToAnyPrecision angle = [&sum](int precision) {
      Real value(precision);
      mpfr_div(value.get(), sum.over.get(), sum.under.get(), MPFR_RNDN);
      return value;
    };
    const RealToAnyPrecision to_scale = [scale](int precision) {
      return Real(scale, precision);
    };
    RoundSinusoid({wave.kind, 1, angle, to_scale}, type, out);
  };
  return std::make_unique<ListedSinusoids>(std::move(rows), format.type);
}

EvaluatorPtr PrepareFloat32Angles(std::vector<float> inverse_frequencies,
                                  RealToAnyPrecision scale, DataType type) {
  return std::make_unique<Float32AngleEvaluator>(std::move(inverse_frequencies),
                                                 std::move(scale), type);
}

}  // namespace attnbias
