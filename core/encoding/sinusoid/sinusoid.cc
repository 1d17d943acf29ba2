// SPDX-License-Identifier: Apache-2.0
// The definition of sinusoidal positions, over real numbers.
#include "core/encoding/sinusoid/sinusoid.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/executor.h"
#include "core/numerics/rounding.h"
#include "core/request/rules.h"

namespace attnbias {
namespace {

// Returns the ladder's frequency k to within a relative error of 60 x 2^-p.
Real FrequencyAt(const SinusoidLadder& ladder, int64_t k, int precision) {
  return ladder.given != nullptr ? Real((*ladder.given)[k], precision)
                                 : PowerOf(ladder, k, precision) * ladder.first;
}

// Returns the frequencies base^(-2k / columns).
SinusoidLadder LadderOfBase(double base, int64_t columns) {
  return {.ratio_over = base, .numerator = 2, .denominator = std::max<int64_t>(columns, 1)};
}

// Columns and pairs that share one ladder.
struct LadderSpan {
  int64_t columns = 0;
  int64_t pairs = 0;

  void Add(const SinusoidColumns& axis) {
    columns += axis.sines + axis.cosines;
    pairs += axis.sines;
  }
};

absl::StatusOr<SinusoidLadder> LadderOf(const std::string& path, const v1::Ladder& spec,
                                        const LadderSpan& span) {
  const auto& [columns, pairs] = span;
  if (spec.has_frequencies()) {
    const auto& values = spec.frequencies().values();
    if (values.size() != pairs) {
      return Invalid(path, ".frequencies: got ", values.size(), " numbers, want ", pairs,
                     ", one for each pair of columns");
    }
    return SinusoidLadder{.given =
                              std::make_shared<std::vector<double>>(values.begin(), values.end())};
  }
  if (!spec.has_timescales()) return LadderOfBase(spec.base(), columns);
  return SinusoidLadder{.first = spec.timescales().min(),
                        .ratio_over = spec.timescales().max(),
                        .ratio_under = spec.timescales().min(),
                        .numerator = 1,
                        .denominator = std::max<int64_t>(pairs - 1, 1)};
}

// Returns the number of columns for each axis, not counting those that `odd` leaves at 0.
absl::StatusOr<std::vector<int64_t>> DimsOf(absl::string_view encoding,
                                            const v1::Sinusoidal& spec) {
  const int64_t count = std::max(spec.axes_size(), 1);
  std::vector<int64_t> dims(spec.axis_dims().begin(), spec.axis_dims().end());
  const bool has_zeros = spec.odd() == v1::ODD_COLUMN_ZERO;
  if (dims.empty()) {
    if (count > 1 && spec.dim() < 2 * count) {
      return Invalid(encoding, ".dim: got ", spec.dim(), ", want at least ", 2 * count,
                     ", two columns for each of the axes");
    }
    if (!has_zeros && spec.dim() % count != 0) {
      return Invalid(encoding, ".dim: got ", spec.dim(), ", want a multiple of ", count,
                     " (the number of axes); or set axis_dims");
    }
    dims.assign(count, spec.dim() / count);
  } else if (const int64_t sum = std::accumulate(dims.begin(), dims.end(), int64_t{0});
             sum != spec.dim()) {
    return Invalid(encoding, ".axis_dims: got ", sum, " columns in total, want ", spec.dim(),
                   " (dim)");
  }
  if (has_zeros) {
    for (int64_t& dim : dims) dim -= dim % 2;
  }
  return dims;
}

void PlaceColumns(const v1::Sinusoidal& spec, std::vector<SinusoidAxis>& axes) {
  LadderSpan all;
  for (const SinusoidAxis& axis : axes) all.Add(axis.columns);
  const bool sines_first = spec.columns() != v1::COLUMNS_COSINES_SINES;
  LadderSpan before;
  for (SinusoidAxis& axis : axes) {
    SinusoidColumns& columns = axis.columns;
    columns.width = spec.dim();
    if (spec.across_axes()) {
      columns.sin_offset = before.pairs + (sines_first ? 0 : all.columns - all.pairs);
      columns.cos_offset = before.columns - before.pairs + (sines_first ? all.pairs : 0);
    } else {
      columns.sin_offset += before.columns;
      columns.cos_offset += before.columns;
    }
    before.Add(columns);
  }
}

}  // namespace

Real StretchFactor(const AxisStretch& stretch, int precision) {
  return stretch.scale / (Real(stretch.length, precision) + stretch.eps);
}

Real PowerOf(const SinusoidLadder& ladder, int64_t steps, int precision) {
  return Pow(Real(ladder.ratio_over, precision) / ladder.ratio_under,
             Real(-steps * ladder.numerator, precision) / ladder.denominator);
}

SinusoidColumns::SinusoidColumns(int64_t dim, v1::Columns order)
    : width(dim),
      sines(dim - dim / 2),
      cosines(dim / 2),
      pair_stride(1),
      sin_offset(0),
      cos_offset(sines) {
  if (order == v1::COLUMNS_INTERLEAVED) {
    pair_stride = 2;
    cos_offset = 1;
  } else if (order == v1::COLUMNS_COSINES_SINES) {
    sin_offset = cosines;
    cos_offset = 0;
  }
}

SinusoidColumns::Wave SinusoidColumns::WaveAt(int64_t column) const {
  const int64_t distance = column - sin_offset;
  if (distance >= 0 && distance % pair_stride == 0 && distance / pair_stride < sines) {
    return {distance / pair_stride, Kind::kSine};
  }
  return {(column - cos_offset) / pair_stride, Kind::kCosine};
}

std::vector<int64_t> SinusoidAxis::Rotating() const {
  std::vector<int64_t> rotating;
  for (int64_t i = 0; i < columns.sines; ++i) {
    const bool rests = ladder.given != nullptr && (*ladder.given)[first_frequency + i] == 0;
    if (!rests) rotating.push_back(i);
  }
  return rotating;
}

SinusoidAxis AxisOfBase(double base, int64_t dim, v1::Columns order) {
  return {.columns = {dim, order}, .ladder = LadderOfBase(base, dim)};
}

absl::StatusOr<std::vector<SinusoidAxis>> AxesOf(absl::string_view encoding,
                                                 const v1::Sinusoidal& spec) {
  if (spec.across_axes() && spec.columns() == v1::COLUMNS_INTERLEAVED) {
    return Invalid(encoding,
                   ".across_axes: got true, want false, or columns "
                   "SINES_COSINES or COSINES_SINES");
  }
  ATTNBIAS_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, DimsOf(encoding, spec));
  const auto has_own = [&](int64_t axis) {
    return axis < spec.axes_size() && spec.axes(static_cast<int>(axis)).has_ladder();
  };
  LadderSpan span;
  bool all_have_own = true;
  for (int64_t i = 0; i < std::ssize(dims); ++i) {
    if (has_own(i)) continue;
    all_have_own = false;
    span.Add({dims[i], spec.columns()});
  }
  const std::string path = absl::StrCat(encoding, ".ladder");
  SinusoidLadder shared;
  if (!all_have_own) {
    ATTNBIAS_ASSIGN_OR_RETURN(shared, LadderOf(path, spec.ladder(), span));
  } else if (IdentityOf(spec.ladder(), false, Tables()) !=
             IdentityOf(v1::Ladder(), false, Tables())) {
    return Invalid(path, ": got a ladder, want none: every axis has its own");
  }
  std::vector<SinusoidAxis> axes;
  LadderSpan before;
  for (int64_t i = 0; i < std::ssize(dims); ++i) {
    SinusoidAxis axis = {
        .columns = {dims[i], spec.columns()}, .ladder = shared, .first_frequency = before.pairs};
    if (i < spec.axes_size()) {
      const v1::Axis& given = spec.axes(static_cast<int>(i));
      const std::string at = absl::StrCat(encoding, ".axes[", i, "]");
      axis.stretch = {given.scale(), given.offset(), given.length(), given.eps()};
      if (given.has_ladder()) {
        LadderSpan own;
        own.Add(axis.columns);
        axis.first_frequency = 0;
        ATTNBIAS_ASSIGN_OR_RETURN(axis.ladder, LadderOf(at + ".ladder", given.ladder(), own));
      }
    }
    if (!has_own(i)) before.Add(axis.columns);
    axes.push_back(std::move(axis));
  }
  PlaceColumns(spec, axes);
  return axes;
}

std::vector<double> OffsetsOf(const std::vector<SinusoidAxis>& axes) {
  std::vector<double> offsets;
  for (const SinusoidAxis& axis : axes) offsets.push_back(axis.stretch.offset);
  return offsets;
}

std::vector<AxisColumns> RunsOf(absl::Span<const int64_t> axis_of_column) {
  std::vector<AxisColumns> runs;
  for (int64_t column = 0; column < std::ssize(axis_of_column); ++column) {
    const int64_t axis = axis_of_column[column];
    if (axis != kNoAxis && (runs.empty() || runs.back().axis != axis)) {
      runs.push_back({axis, {column, column}});
    }
    ++runs.back().columns.end;
  }
  return runs;
}

SinusoidFrequency FrequencyOf(const Real& radians_per_position) {
  return {
      FloatingOf(radians_per_position / TwoPi(kSinusoidPrecision)),
      std::fabs(radians_per_position.ToDouble()),
  };
}

ReducedAngle AngleAt(const SinusoidFrequency& frequency, int64_t position, double rest) {
  std::array<AngleTerm, 2> terms;
  size_t count = 0;
  for (const auto& at : {BinaryPosition{position}, *BinarySum(rest, /*b=*/0)}) {
    if (at.count != 0) terms[count++] = {frequency.revolutions_per_position, at};
  }
  return AngleOf(absl::MakeConstSpan(terms.data(), count));
}

SinusoidRows RowsOf(const SinusoidColumns& columns, double offset,
                    absl::FunctionRef<const Real&(int64_t index)> at,
                    RealsToAnyPrecision frequencies, RealToAnyPrecision scale) {
  const int64_t whole = std::llround(offset);
  const double rest = offset - static_cast<double>(whole);  // exactly
  SinusoidRows rows = {.columns = columns,
                       .frequencies = {},
                       .scale = scale(kSinusoidPrecision),
                       .reference = nullptr,
                       .whole = whole,
                       .rest = rest};
  rows.frequencies.reserve(columns.sines);
  for (int64_t i = 0; i < columns.sines; ++i) {
    // Called only to yield, since a cancelled caller discards the result.
    (void)ComputeScope::Continues();
    rows.frequencies.push_back(FrequencyOf(at(i)));
  }
  rows.reference = [columns, whole, rest, frequencies = std::move(frequencies),
                    scale = std::move(scale)](BinaryPosition position, int64_t column,
                                              DataType type, std::byte* out) {
    using Kind = SinusoidColumns::Kind;
    const SinusoidColumns::Wave wave = columns.WaveAt(column);
    const int64_t count = position.count + whole;
    const bool rotates = count != 0 || rest != 0;
    if (!rotates && wave.kind == Kind::kSine) return RoundDouble(0, type, out);
    if (!rotates) return RoundReal(scale(kSinusoidPrecision), type, out);
    const auto angle = [&](int precision) {
      Real value = (Real(rest, precision) + count) * frequencies(wave.frequency, precision);
      mpfr_mul_2si(value.get(), value.get(), position.exponent, MPFR_RNDN);
      return value;
    };
    RoundSinusoid(wave.kind, angle, scale, type, out);
  };
  return rows;
}

SinusoidRows RowsOf(const SinusoidAxis& axis, const SinusoidColumns& columns, double scale) {
  SinusoidLadder ladder = axis.ladder;
  int64_t first = axis.first_frequency;
  if (ladder.given != nullptr) {
    const auto begin = ladder.given->begin() + first;
    auto rotating = std::make_shared<std::vector<double>>(begin, begin + axis.columns.sines);
    std::erase(*rotating, 0);
    ladder.given = std::move(rotating);
    first = 0;
  }
  const auto exact = [ladder, first, stretch = axis.stretch](int64_t i, int precision) {
    return FrequencyAt(ladder, first + i, precision) * StretchFactor(stretch, precision);
  };
  const Real ratio = PowerOf(ladder, 1, kSinusoidPrecision);
  Real frequency(kSinusoidPrecision);
  const auto at = [&](int64_t i) -> const Real& {
    if (ladder.given != nullptr || i == 0) {
      frequency = exact(i, kSinusoidPrecision);
    } else {
      frequency *= ratio;
    }
    return frequency;
  };
  return RowsOf(columns, axis.stretch.offset, at, exact,
                [scale](int precision) { return Real(scale, precision); });
}

void RoundSinusoid(SinusoidColumns::Kind kind, absl::FunctionRef<Real(int precision_bits)> angle_to,
                   absl::FunctionRef<Real(int precision_bits)> scale_to, DataType type,
                   std::byte* out) {
  // Sines and cosines of algebraic angles are transcendental (Lindemann), so when multiplied by an
  // algebraic scale they are never ties.
  RoundByRefining(
      [&](Real& value, Real& bound) {
        const int precision = value.precision();
        const Real angle = angle_to(precision);
        const Real scale = scale_to(precision);
        const bool is_sine = kind == SinusoidColumns::Kind::kSine;
        (is_sine ? mpfr_sin : mpfr_cos)(value.get(), angle.get(), MPFR_RNDN);
        value *= scale;
        // The angle's relative error is at most 66 x 2^-p, and neither function is steeper than 1.
        mpfr_mul(bound.get(), angle.get(), scale.get(), MPFR_RNDA);
        mpfr_abs(bound.get(), bound.get(), MPFR_RNDU);
        mpfr_mul_2si(bound.get(), bound.get(), 7 - precision, MPFR_RNDU);
        // The scale's relative error is at most 64 x 2^-p.
        Real rounding(precision);
        SetRoundingBound(value, 7, rounding);
        mpfr_add(bound.get(), bound.get(), rounding.get(), MPFR_RNDU);
      },
      type, out);
}

}  // namespace attnbias
