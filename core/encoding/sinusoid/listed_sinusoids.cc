// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/errors.h"
#include "core/base/executor.h"
#include "core/encoding/sinusoid/sinusoidal_evaluator.h"
#include "core/numerics/real.h"
#include "core/numerics/revolutions.h"
#include "core/table/table.h"

namespace attnbias {
namespace {

// An angle as an exact fraction. Its numerator is a multiple of 2^-911 and below 2^208.
struct AngleFraction {
  Real over{0, 1152};
  Real under{1, 1152};
};

// Returns the sum of a pair's angles over all axes. GMP's rationals would take 20 times as long,
// since they reduce each result.
AngleFraction SumOf(const FrequencyMatrix& matrix, absl::Span<const BinaryPosition> at,
                    int64_t pair) {
  AngleFraction sum;
  // Each of these is exact: a product of 62, 53 and 53 bits, and a sum of 193 bits.
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

// Describes listed rows to their evaluator. `at` holds the position on each axis.
struct ListedRows {
  SinusoidColumns columns;
  std::vector<ListedAxis> axes;
  Real scale;
  // Returns a pair's angle, or nullopt if it is 0.
  std::function<std::optional<ReducedAngle>(absl::Span<const BinaryPosition> at, int64_t pair)>
      angle;
  // Writes the element at a column with a nonzero angle.
  std::function<void(absl::Span<const BinaryPosition> at, int64_t column, DataType type,
                     std::byte* out)>
      reference;
};

EvaluatorPtr PrepareRows(ListedRows rows, DataType type) {
  using Element = std::array<std::byte, sizeof(double)>;
  // The cosine of angle 0.
  Element scale = {};
  RoundReal(rows.scale, type, scale.data());
  const ScaledRounding rounding(rows.scale, type);
  return MakeEvaluator([rows = std::move(rows), rounding, scale, type, size = SizeOf(type)](
                           const Block& block, std::byte* out, int64_t /*lane_stride_bytes*/) {
    const SinusoidColumns& columns = rows.columns;
    std::vector<BinaryPosition> at(rows.axes.size());
    for (int64_t row = block.span.begin; row < block.span.end; ++row) {
      for (size_t i = 0; i < at.size(); ++i) {
        const auto& [positions, axis, offset] = rows.axes[i];
        const std::vector<double>& list = (*positions)[axis];
        const double position = list.empty() ? static_cast<double>(row) : list[row];
        at[i] = BinarySum(position, offset).value_or(BinaryPosition());
      }
      for (int64_t i = 0; i < columns.sines; ++i) {
        if (!ComputeScope::Continues()) return;
        const std::optional<ReducedAngle> angle = rows.angle(at, i);
        const SinCos both = angle.has_value() ? SinCosOf(*angle) : SinCos();
        const auto write = [&](int64_t column, DoubleDouble value, const Element& at_zero) {
          std::byte* element = out + column * size;
          if (!angle.has_value()) {
            std::memcpy(element, at_zero.data(), size);
          } else if (!rounding.TryRoundRelative(value, both.error, element)) {
            rows.reference(at, column, type, element);
          }
        };
        const int64_t first = i * columns.pair_stride;
        write(columns.sin_offset + first, both.sin, {});
        if (i < columns.cosines) write(columns.cos_offset + first, both.cos, scale);
      }
      out += columns.width * size;
    }
  });
}

// Returns the revolutions per position, [pairs, axes].
std::vector<FloatingRevolutions> RevolutionsOf(const FrequencyMatrix& matrix) {
  std::vector<FloatingRevolutions> revolutions;
  revolutions.reserve(matrix.weights.size());
  for (int64_t pair = 0; pair < matrix.weights.columns(); ++pair) {
    // Called only to yield, since a cancelled caller discards the result.
    (void)ComputeScope::Continues();
    for (int64_t axis = 0; axis < matrix.weights.rows(); ++axis) {
      FloatingRevolutions& own = revolutions.emplace_back();
      const double weight = matrix.weights.At(axis, pair);
      if (weight == 0) continue;
      const Real stretch = StretchFactor(matrix.axes[axis].stretch, kSinusoidPrecision);
      own = FrequencyOf(stretch * weight).revolutions_per_position;
    }
  }
  return revolutions;
}

// Returns a pair's total angle over all axes, or nullopt if it is 0.
std::optional<ReducedAngle> SumInRevolutions(const FrequencyMatrix& matrix,
                                             absl::Span<const FloatingRevolutions> revolutions,
                                             absl::Span<const BinaryPosition> at, int64_t pair) {
  std::array<AngleTerm, kMostAngleTerms> terms;
  size_t count = 0;
  for (size_t axis = 0; axis < at.size(); ++axis) {
    const FloatingRevolutions& own = revolutions[pair * at.size() + axis];
    if (at[axis].count == 0 || own.limbs.back() == 0) continue;
    terms[count++] = {own, at[axis]};
  }
  if (count == 0) return std::nullopt;
  const ReducedAngle angle = AngleOf(absl::MakeConstSpan(terms.data(), count));
  const bool may_be_zero = count > 1 && angle.error >= 0.5;
  if (may_be_zero && SumOf(matrix, at, pair).over.is_zero()) return std::nullopt;
  return angle;
}

// Returns fl32(position x inverse frequency).
float Float32Angle(BinaryPosition at, float inverse_frequency) {
  const double position = std::ldexp(static_cast<double>(at.count), at.exponent);
  return static_cast<float>(position) * inverse_frequency;
}

}  // namespace

EvaluatorPtr PrepareListed(SinusoidRows rows, ListedAxis axis, DataType type) {
  const auto shared = std::make_shared<const SinusoidRows>(std::move(rows));
  const auto angle = [shared](absl::Span<const BinaryPosition> at,
                              int64_t pair) -> std::optional<ReducedAngle> {
    if (at.front().count == 0) return std::nullopt;
    const AngleTerm term[] = {{shared->frequencies[pair].revolutions_per_position, at.front()}};
    return AngleOf(term);
  };
  const auto reference = [shared](absl::Span<const BinaryPosition> at, int64_t column, DataType to,
                                  std::byte* out) {
    shared->reference(at.front(), column, to, out);
  };
  return PrepareRows(
      ListedRows{shared->columns, {std::move(axis)}, shared->scale, angle, reference}, type);
}

absl::StatusOr<FrequencyMatrixPtr> FrequencyMatrixOf(
    absl::string_view encoding, const google::protobuf::RepeatedPtrField<v1::Axis>& axes,
    const v1::TableRef& matrix, int64_t pairs, const Tables& tables) {
  v1::Sinusoidal plain;
  const int count = std::max(axes.size(), 1);
  plain.set_dim(2 * count);
  *plain.mutable_axes() = axes;
  for (int axis = 0; axis < axes.size(); ++axis) {
    if (!axes[axis].has_ladder()) continue;
    return Invalid(encoding, ".axes[", axis,
                   "].ladder: got a ladder, want none with frequency_matrix");
  }
  ATTNBIAS_ASSIGN_OR_RETURN(std::vector<SinusoidAxis> described, AxesOf(encoding, plain));
  const std::string field = absl::StrCat(encoding, ".frequency_matrix");
  const Table table = *tables.Get(matrix);
  if (table.rows() != count || table.columns() != pairs) {
    return Invalid(field, ": got ", table.rows(), " axes of ", table.columns(), " pairs, want ",
                   count, " of ", pairs);
  }
  return std::make_shared<const FrequencyMatrix>(
      FrequencyMatrix{.axes = std::move(described), .weights = table});
}

int64_t SummedBytes(const FrequencyMatrix& matrix) {
  return matrix.weights.size() * int64_t{sizeof(FloatingRevolutions)};
}

EvaluatorPtr PrepareSummed(const FrequencyMatrixPtr& matrix, const SinusoidColumns& columns,
                           const RealPositionsPtr& positions, const NumberFormat& format) {
  std::vector<ListedAxis> axes;
  for (size_t axis = 0; axis < matrix->axes.size(); ++axis) {
    axes.push_back({positions, axis, matrix->axes[axis].stretch.offset});
  }
  auto angle = [matrix, revolutions = RevolutionsOf(*matrix)](absl::Span<const BinaryPosition> at,
                                                              int64_t pair) {
    return SumInRevolutions(*matrix, revolutions, at, pair);
  };
  const auto reference = [matrix, columns, scale = format.scale](
                             absl::Span<const BinaryPosition> at, int64_t column, DataType type,
                             std::byte* out) {
    const SinusoidColumns::Wave wave = columns.WaveAt(column);
    const AngleFraction sum = SumOf(*matrix, at, wave.frequency);
    // The fraction is exact, so the quotient is accurate at any precision.
    const auto angle = [&sum](int precision) {
      Real value(precision);
      mpfr_div(value.get(), sum.over.get(), sum.under.get(), MPFR_RNDN);
      return value;
    };
    const auto scale_to = [scale](int precision) { return Real(scale, precision); };
    RoundSinusoid(wave.kind, angle, scale_to, type, out);
  };
  return PrepareRows(ListedRows{columns, std::move(axes), Real(format.scale, kSinusoidPrecision),
                                std::move(angle), reference},
                     format.type);
}

EvaluatorPtr PrepareFloat32Angles(std::vector<float> inverse_frequencies, RealToAnyPrecision scale,
                                  DataType type) {
  const SinusoidColumns columns(2 * std::ssize(inverse_frequencies), v1::COLUMNS_SINES_COSINES);
  const FloatingRevolutions radian =
      FrequencyOf(Real(1, kSinusoidPrecision)).revolutions_per_position;
  const auto angle = [inverse_frequencies, radian](absl::Span<const BinaryPosition> at,
                                                   int64_t pair) -> std::optional<ReducedAngle> {
    const float radians = Float32Angle(at.front(), inverse_frequencies[pair]);
    if (radians == 0) return std::nullopt;
    // The float is exact.
    const AngleTerm term[] = {{radian, *BinarySum(radians, 0)}};
    return AngleOf(term);
  };
  const auto reference = [inverse_frequencies, columns, scale](absl::Span<const BinaryPosition> at,
                                                               int64_t column, DataType to,
                                                               std::byte* out) {
    const SinusoidColumns::Wave wave = columns.WaveAt(column);
    const float radians = Float32Angle(at.front(), inverse_frequencies[wave.frequency]);
    const auto exact = [radians](int precision) { return Real(radians, precision); };
    RoundSinusoid(wave.kind, exact, scale, to, out);
  };
  const ListedAxis integers = {std::make_shared<RealPositions>(1), 0, 0};
  return PrepareRows(ListedRows{columns, {integers}, scale(kSinusoidPrecision), angle, reference},
                     type);
}

}  // namespace attnbias
