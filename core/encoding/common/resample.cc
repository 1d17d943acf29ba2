// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/common/resample.h"

#include <gmpxx.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <type_traits>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/base/executor.h"
#include "core/numerics/double_double.h"
#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

using RowAxis = Resampling::Axis;
// Holds sample positions and distances, which are below 2^100.
using Wide = __int128;

constexpr int64_t kMaxSide = int64_t{1} << 20;
// Maximum number of table entries that a target row depends on if the filter is stretched.
constexpr int64_t kMaxSummands = int64_t{1} << 20;
// Maximum number of summands in a row that is computed in one time slice, with and without a
// stretched filter: at a tie, a summand takes almost a microsecond. Rows with more summands run on
// few threads, but real models' tables have no such rows.
constexpr int64_t kMaxStretchedSummandsAtOnce = int64_t{1} << 15;
constexpr int64_t kMaxSummandsAtOnce = int64_t{1} << 17;

// Bounds on the error of a product of two weights, and of each product and sum, relative to the
// magnitudes of the table's values. A weight is a polynomial in n / e, where n is the distance
// between two rows and e the filter's unit; both are below 2^100. In double-double, n / e has an
// error of 2^-100, a weight 2^-97, and a weight divided by the sum of weights 2^-90: the weights
// add up to at least 0.06 e, and their magnitudes to less than 3.5 e.
constexpr double kWeightError = 0x1p-86;
constexpr double kSummandError = 0x1p-98;
// Number of bits in an exact sum of doubles times a scale if weights have one bit: 2098 for the
// exponents of F64, 53 for the scale, and the bits of the count.
constexpr int kSumPrecision = 2200;

// Returns whether the error bounds of double-double arithmetic hold for `value`.
bool IsTame(double value) {
  const double magnitude = std::fabs(value);
  return value == 0 || (magnitude > 0x1p-300 && magnitude < 0x1p300);
}

Wide FloorOf(Wide numerator, Wide denominator) {
  const Wide quotient = numerator / denominator;
  return quotient * denominator > numerator ? quotient - 1 : quotient;
}

template <typename Number>
Number ExactNumber(Wide integer) {
  const auto hi = static_cast<double>(integer);
  const auto lo = static_cast<double>(integer - static_cast<Wide>(hi));
  if constexpr (std::is_same_v<Number, DoubleDouble>) {
    return {hi, lo};
  } else {
    return mpz_class(hi) + mpz_class(lo);
  }
}

template <typename Number>
struct Tap {
  int64_t row;
  Number weight;
};

template <typename Number>
struct Taps {
  absl::InlinedVector<Tap<Number>, 4> taps;
  // The sum of all weights, if it is not 1.
  Number total;
  bool is_exact = true;
};

// Evaluates the filter at n / end, which is at most 2. The result is multiplied by end^3 a_unit for
// a cubic filter (whose parameter is a / a_unit), and by end otherwise.
template <typename Number>
Number Filtered(bool is_cubic, bool is_near, const Number& n, const Number& end, const Number& a,
                const Number& a_unit) {
  const Number rest = end + -n;
  if (!is_cubic) return rest;
  if (is_near) {
    return rest * (end * (end + n) * a_unit + -((a + a_unit + a_unit) * n * n));
  }
  const Number beyond = rest + end;
  return -(a * rest * beyond * beyond);
}

// Returns whether sums and products of a few numbers like `value` are exact in doubles.
bool IsShort(const DoubleDouble& value, int bits) {
  return value.lo == 0 && std::ldexp(value.hi, bits) == std::trunc(std::ldexp(value.hi, bits));
}

// Returns the source rows that row `row` of the target depends on, and their weights: either
// double-doubles whose sum is 1, or integers.
template <typename Number>
Taps<Number> TapsOf(const Resampling& resampling, const RowAxis& axis, int64_t row) {
  constexpr bool kIsExact = std::is_same_v<Number, mpz_class>;
  const bool is_cubic = resampling.is_cubic;
  // The row is at position place / unit in the source.
  const Wide step = axis.numerator;
  const Wide place = axis.has_corners ? row * step : (2 * row + 1) * step - axis.denominator;
  const Wide unit = axis.has_corners ? axis.denominator : 2 * axis.denominator;
  // The distance at which the filter's argument is 1, times unit.
  const Wide end = axis.is_stretched ? 2 * step : unit;
  const Wide reach = is_cubic ? 2 * end : end;

  Number scaled_end{1.0};
  Number a{resampling.cubic_a};
  Number a_unit{1.0};
  if constexpr (kIsExact) {
    scaled_end = ExactNumber<Number>(end);
    int exponent = 0;
    a = std::ldexp(std::frexp(resampling.cubic_a, &exponent), 53);
    mpz_mul_2exp(a_unit.get_mpz_t(), a_unit.get_mpz_t(), 53 - exponent);
  }

  Taps<Number> found{.taps = {}, .total = Number{0.0}};
  auto first = static_cast<int64_t>(FloorOf(place - reach, unit) + 1);
  auto last = static_cast<int64_t>(-FloorOf(-place - reach, unit) - 1);
  if (resampling.is_cut) {
    first = std::max<int64_t>(first, 0);
    last = std::min(last, axis.source - 1);
  }
  for (int64_t at = first; at <= last; ++at) {
    if (!ComputeScope::Continues()) break;
    const Wide signed_distance = at * unit - place;
    const Wide distance = signed_distance < 0 ? -signed_distance : signed_distance;
    if (distance == end) continue;  // The weight is 0.
    Number n = ExactNumber<Number>(distance);
    if constexpr (!kIsExact) {
      n = n / ExactNumber<Number>(end);
      found.is_exact = found.is_exact && IsShort(n, is_cubic ? 12 : 26);
    }
    const Number weight = Filtered<Number>(is_cubic, distance < end, n, scaled_end, a, a_unit);
    const int64_t clamped = std::clamp<int64_t>(at, 0, axis.source - 1);
    if (!found.taps.empty() && found.taps.back().row == clamped) {
      Number& sum = found.taps.back().weight;
      sum = sum + weight;
    } else {
      found.taps.push_back({clamped, weight});
    }
    found.total = found.total + weight;
  }
  if constexpr (!kIsExact) {
    found.is_exact = found.is_exact && IsShort(a, 4);
    if (resampling.is_cut) {
      int exponent = 0;
      found.is_exact =
          found.is_exact && found.total.lo == 0 && std::frexp(found.total.hi, &exponent) == 0.5;
      for (auto& tap : found.taps) tap.weight = tap.weight / found.total;
    }
    if (found.taps.size() == 1) {
      found.taps.front().weight = {1, 0};
      found.is_exact = true;
    }
  }
  return found;
}

class RowWeights {
 public:
  RowWeights(const Resampling& resampling, int64_t row) : resampling_(resampling), row_(row) {
    const auto rows = InAxis<DoubleDouble>(0);
    const auto columns = InAxis<DoubleDouble>(1);
    is_exact_ = rows.is_exact && columns.is_exact;
    taps_.reserve(rows.taps.size() * columns.taps.size());
    for (const auto& down : rows.taps) {
      for (const auto& across : columns.taps) {
        taps_.push_back(
            {down.row * resampling.axes[1].source + across.row, down.weight * across.weight});
        is_exact_ = is_exact_ && taps_.back().weight.lo == 0;
      }
    }
  }

  const std::vector<Tap<DoubleDouble>>& taps() const { return taps_; }

  // If a double-double can hold the exact sum, sets `sum` to it and returns true.
  bool TrySum(const Table& table, int64_t first_row, int64_t column, DoubleDouble& sum) const {
    if (!is_exact_) return false;
    sum = {};
    for (const auto& [row, weight] : taps_) {
      const double value = table.At(first_row + row, column);
      if (!IsTame(value)) return false;
      const DoubleDouble product = TwoProduct(value, weight.hi);
      const DoubleDouble high = TwoSum(sum.hi, product.hi);
      const DoubleDouble low = TwoSum(sum.lo, high.lo);
      if (product.lo != 0 || low.lo != 0) return false;
      sum = {high.hi, low.hi};
    }
    sum = TwoSum(sum.hi, sum.lo);
    return true;
  }

  // Sets `sum` and a bound on its error. Returns false if values are too large or too small for the
  // bound to hold.
  bool TryEstimate(const Table& table, int64_t first_row, int64_t column, DoubleDouble& sum,
                   double& error) const {
    sum = {};
    double magnitude = 0;
    for (const auto& [row, weight] : taps_) {
      const double value = table.At(first_row + row, column);
      if (!IsTame(value)) return false;
      sum = sum + weight * value;
      magnitude += std::fabs(value);
    }
    error = magnitude * (kWeightError + static_cast<double>(taps_.size()) * kSummandError);
    return magnitude == 0 || std::fabs(sum.hi) > 0x1p-500;
  }

  // Writes the sum times the scale.
  void WriteExactly(const Table& table, int64_t first_row, int64_t column,
                    const NumberFormat& format, std::byte* out) {
    if (!exact_.has_value()) {
      exact_.emplace(InAxis<mpz_class>(0), InAxis<mpz_class>(1), taps_.size());
    }
    // After a cancellation, the weights may be incomplete, so there is no sum.
    if (!ComputeScope::Continues()) return;
    auto& [down, across, total, sum, of_row, number] = *exact_;
    mpfr_set_zero(sum.get(), 1);
    for (const auto& [row, row_weight] : down.taps) {
      mpfr_set_zero(of_row.get(), 1);
      const int64_t first = first_row + row * resampling_.axes[1].source;
      for (const auto& [place, weight] : across.taps) {
        if (!ComputeScope::Continues()) return;
        mpfr_set_d(number.get(), table.At(first + place, column), MPFR_RNDN);
        mpfr_mul_z(number.get(), number.get(), weight.get_mpz_t(), MPFR_RNDN);
        of_row += number;
      }
      mpfr_mul_z(of_row.get(), of_row.get(), row_weight.get_mpz_t(), MPFR_RNDN);
      sum += of_row;
    }
    sum *= format.scale;
    mpfr_div_z(sum.get(), sum.get(), total.get_mpz_t(), MPFR_RNDN);
    if (sum.is_zero()) return RoundDouble(0, format.type, out);
    RoundReal(sum, format.type, out);
  }

 private:
  // Weights as integers, and temporaries for computing sums.
  struct Exact {
    Exact(Taps<mpz_class> in_rows, Taps<mpz_class> in_columns, size_t count)
        : down(std::move(in_rows)),
          across(std::move(in_columns)),
          total(down.total * across.total),
          sum(static_cast<int>(kSumPrecision + mpz_sizeinbase(total.get_mpz_t(), 2) +
                               std::bit_width(count))),
          of_row(sum.precision()),
          number(sum.precision()) {}

    Taps<mpz_class> down;
    Taps<mpz_class> across;
    mpz_class total;
    Real sum;
    Real of_row;
    Real number;
  };

  template <typename Number>
  Taps<Number> InAxis(int axis) const {
    const int64_t width = resampling_.axes[1].target;
    return TapsOf<Number>(resampling_, resampling_.axes[axis],
                          axis == 0 ? row_ / width : row_ % width);
  }

  const Resampling& resampling_;
  const int64_t row_;
  std::vector<Tap<DoubleDouble>> taps_;
  bool is_exact_;
  // Created when first needed.
  std::optional<Exact> exact_;
};

absl::Status CheckSides(absl::string_view path, const v1::Resample& spec,
                        absl::Span<const int64_t> source, absl::Span<const int64_t> target,
                        int64_t rows) {
  if (target.empty()) return Invalid(path, ".target: not set, want one or two sides");
  if (source.size() != target.size()) {
    return Invalid(path, ".source: got ", source.size(), " sides, want ", target.size(),
                   ", as many as the target has");
  }
  int64_t product = 1;
  for (const int64_t side : source) product *= side;
  if (product != rows) {
    return Invalid(path, ".source: got sides ", absl::StrJoin(source, " x "),
                   ", want sides whose product is ", rows, ", the table's number of rows",
                   spec.prefix_rows() > 0 ? " after" : " without", " prefix_rows");
  }
  const int64_t longest = *std::ranges::max_element(source);
  if (longest > kMaxSide) {
    return Invalid(path, ".source: got a side of ", longest, " rows, want at most 2^20");
  }
  if (spec.step().empty() || spec.step_size() == std::ssize(target)) return absl::OkStatus();
  return Invalid(path, ".step: got ", spec.step_size(), " numbers, want ", target.size(),
                 ", one for each side of the target");
}

RowAxis RowAxisOf(const v1::Resample& spec, int index, int64_t source, int64_t target) {
  RowAxis axis{.source = source, .target = target, .numerator = source, .denominator = target};
  if (spec.align_corners()) {
    axis.numerator = target > 1 ? source - 1 : 0;
    axis.denominator = std::max<int64_t>(target - 1, 1);
    // With antialias, torch's align_corners changes only the step.
    axis.has_corners = !spec.antialias();
  }
  if (!spec.step().empty()) {
    // A step is at least 2^-20, so as a double it is a multiple of 2^-72.
    int exponent = 0;
    axis.numerator = static_cast<int64_t>(std::ldexp(std::frexp(spec.step(index), &exponent), 53));
    axis.denominator = Wide{1} << (53 - exponent);
  }
  axis.is_stretched = spec.antialias() && axis.numerator > axis.denominator;
  return axis;
}

}  // namespace

absl::StatusOr<Resampling> Resampling::Create(absl::string_view path, const v1::Resample& spec,
                                              absl::Span<const int64_t> target, int64_t rows,
                                              int64_t columns) {
  std::vector<int64_t> source(spec.source().begin(), spec.source().end());
  if (source.empty() && target.size() == 1) source = {rows};
  ATTNBIAS_RETURN_IF_ERROR(CheckSides(path, spec, source, target, rows));
  Resampling made;
  made.is_cubic = spec.filter() == v1::FILTER_CUBIC;
  if (spec.has_cubic_a() && !made.is_cubic) {
    return Invalid(path, ".cubic_a: got ", spec.cubic_a(), ", want none with filter LINEAR");
  }
  made.is_cut = spec.antialias();
  made.cubic_a = spec.has_cubic_a() ? spec.cubic_a() : spec.antialias() ? -0.5 : -0.75;
  int64_t summands = columns;
  for (size_t i = 0; i < target.size(); ++i) {
    const auto index = static_cast<int>(i);
    Axis& axis = made.axes[i + 2 - target.size()];
    axis = RowAxisOf(spec, index, source[i], target[i]);
    if (spec.antialias() && !spec.step().empty()) {
      const double most =
          2 * static_cast<double>(source[i]) / (2 * static_cast<double>(target[i]) - 1);
      if (spec.step(index) > most) {
        return Invalid(path, ".step[", i, "]: got ", spec.step(index), ", want at most ", most,
                       " with antialias: rows beyond the source have no value");
      }
    }
    summands *= std::min(made.Window(axis), kMaxSummands);
    if (spec.antialias() && summands > kMaxSummands) {
      return Invalid(path, ".antialias: got true, want false: a row of the target would depend on ",
                     summands, " numbers of the source, more than 2^20");
    }
  }
  return made;
}

int64_t Resampling::Window(const Axis& axis) const {
  const int64_t stretch =
      axis.is_stretched ? static_cast<int64_t>(axis.numerator / axis.denominator) : 0;
  return std::min(axis.source, (is_cubic ? 4 : 2) * (stretch + 1));
}

int64_t Resampling::bytes() const {
  const int64_t down = Window(axes[0]);
  const int64_t across = Window(axes[1]);
  return int64_t{sizeof(Tap<DoubleDouble>)} * down * across + 256 * (down + across);
}

int64_t TableRows::batch() const {
  if (!resampling_.has_value()) return 1;
  const int64_t taps =
      resampling_->Window(resampling_->axes[0]) * resampling_->Window(resampling_->axes[1]);
  const bool is_stretched = resampling_->axes[0].is_stretched || resampling_->axes[1].is_stretched;
  const int64_t most = is_stretched ? kMaxStretchedSummandsAtOnce : kMaxSummandsAtOnce;
  return taps > most / table_.columns() ? kNonPreemptible : 1;
}

void TableRows::Write(int64_t row, Range columns, int64_t stride, std::byte* out) const {
  std::optional<RowWeights> weights;
  if (resampling_.has_value() && row >= prefix_rows_) {
    weights.emplace(*resampling_, row - prefix_rows_);
    const auto& taps = weights->taps();
    if (taps.size() == 1) {
      row = prefix_rows_ + taps.front().row;
      weights.reset();
    }
  }
  for (int64_t column = columns.begin; column < columns.end; ++column, out += stride) {
    if (!weights.has_value()) {
      RoundProduct(table_.At(row, column), format_.scale, format_.type, out);
      continue;
    }
    if (!ComputeScope::Continues()) return;
    DoubleDouble sum;
    double error = 0;
    if (format_.scale == 1 && weights->TrySum(table_, prefix_rows_, column, sum)) {
      if (sum.hi == 0) sum = {};  // not -0
      RoundSum(sum, format_.type, out);
    } else if (!weights->TryEstimate(table_, prefix_rows_, column, sum, error)) {
      weights->WriteExactly(table_, prefix_rows_, column, format_, out);
    } else if (error == 0) {
      RoundDouble(0, format_.type, out);
    } else if (!rounding_.TryRound(sum, error + ScaledRounding::kLeastError * std::fabs(sum.hi),
                                   out)) {
      weights->WriteExactly(table_, prefix_rows_, column, format_, out);
    }
  }
}

}  // namespace attnbias
