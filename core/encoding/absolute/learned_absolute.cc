// SPDX-License-Identifier: Apache-2.0
// Learned absolute positions: rows of a table, perhaps stretched to another
// length.

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "core/encoding/common/scaled_rounding.h"
#include "core/encoding/common/table_checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/numerics/double_double.h"
#include "core/numerics/real.h"
#include "core/numerics/rounding.h"
#include "core/request/rules.h"

namespace attnbias {
namespace {

// Between rows `row` and `row` + 1 of a table, at upper / denominator of the
// way; at a row itself, upper is 0. In lowest terms.
struct RowPlace {
  int64_t row = 0;
  int64_t upper = 0;
  int64_t denominator = 1;
};

// Where row `row` of `to` rows reads a table of `from` rows; `to` is at most
// 2^20, `from` at most 2^40.
RowPlace PlaceOf(v1::Interpolation interpolation, int64_t row, int64_t from,
                 int64_t to) {
  int64_t numerator = row;
  int64_t denominator = 1;
  if (interpolation == v1::INTERPOLATION_LINEAR) {
    numerator = (2 * row + 1) * from - to;
    denominator = 2 * to;
  } else if (interpolation == v1::INTERPOLATION_LINEAR_ALIGN_CORNERS) {
    numerator = row * (from - 1);
    denominator = to > 1 ? to - 1 : 1;
  }
  if (numerator <= 0) return {};
  if (numerator >= (from - 1) * denominator) return {.row = from - 1};
  const int64_t upper = numerator % denominator;
  const int64_t divisor = std::gcd(upper, denominator);
  return {.row = numerator / denominator,
          .upper = upper / divisor,
          .denominator = denominator / divisor};
}

// Whether arithmetic on double-doubles is within its bounds on a number and
// what becomes of it.
bool IsTame(double value) {
  const double magnitude = std::fabs(value);
  return value == 0 || (magnitude > 0x1p-300 && magnitude < 0x1p300);
}

// Of the sum of the two products, relative to their magnitudes, and of the
// quotient, relative to its own.
constexpr double kSumBound = 0x1p-103;
constexpr double kMeanBound = 0x1p-100;

// Holds the exact numerator, whose bits span at most the exponents of F64, its
// bits and those of a weight and of a scale; and tells any quotient from a
// number or a tie of `type` that it does not equal, which lies farther from it
// than the numerator's last bit divided by the denominator.
constexpr int kSumPrecision = 2400;

// Returns the rows after interpolation.
int64_t NumRows(const v1::LearnedAbsolute& spec, const Table& table) {
  return spec.has_interpolated_length() ? spec.interpolated_length()
                                        : table.rows();
}

class LearnedAbsoluteEvaluator final : public Evaluator {
 public:
  LearnedAbsoluteEvaluator(const v1::LearnedAbsolute& spec, const Table& table,
                           const NumberFormat& format)
      : spec_(spec),
        table_(table),
        format_(format),
        rounding_(format.scale, format.type) {}

  void Fill(const Block& block, std::byte* out,
            int64_t /*lane_stride_bytes*/) const override {
    const int64_t row_bytes = table_.columns() * SizeOf(format_.type);
    for (int64_t at = block.span.begin; at < block.span.end; ++at) {
      const int64_t row = at + spec_.offset();
      if (spec_.has_padding_idx() && row == spec_.padding_idx()) {
        std::memset(out, 0, row_bytes);
      } else {
        WriteRow(PlaceOf(spec_.interpolation(), row, table_.rows(),
                         NumRows(spec_, table_)),
                 out);
      }
      out += row_bytes;
    }
  }

 private:
  void WriteRow(const RowPlace& place, std::byte* out) const {
    for (int64_t column = 0; column < table_.columns(); ++column) {
      const double value = table_.At(place.row, column);
      if (place.upper == 0) {
        RoundProduct(value, format_.scale, format_.type, out);
      } else {
        WriteBetween(place, value, table_.At(place.row + 1, column), out);
      }
      out += SizeOf(format_.type);
    }
  }

  // Writes scale ((denominator - upper) a + upper b) / denominator, rounded
  // once. `upper` is not 0; a and b are finite.
  void WriteBetween(const RowPlace& place, double a, double b,
                    std::byte* out) const {
    if (!TryInDoubleDoubles(place, a, b, out)) WriteExactly(place, a, b, out);
  }

  bool TryInDoubleDoubles(const RowPlace& place, double a, double b,
                          std::byte* out) const {
    if (!IsTame(a) || !IsTame(b)) return false;
    const auto denominator = static_cast<double>(place.denominator);
    const DoubleDouble low =
        TwoProduct(a, static_cast<double>(place.denominator - place.upper));
    const DoubleDouble high = TwoProduct(b, static_cast<double>(place.upper));
    if (low.lo == 0 && high.lo == 0) {
      // As every table narrower than F64 has it: the sum is exact, and so is
      // the mean of a table stretched by a power of two.
      const DoubleDouble sum = TwoSum(low.hi, high.hi);
      if (sum.hi == 0) {
        RoundDouble(0, format_.type, out);
        return true;
      }
      if (format_.scale == 1 &&
          std::has_single_bit(static_cast<uint64_t>(place.denominator))) {
        RoundSum({sum.hi / denominator, sum.lo / denominator}, format_.type,
                 out);
        return true;
      }
    }
    const DoubleDouble sum = low + high;
    const double sum_error =
        kSumBound * (std::fabs(low.hi) + std::fabs(high.hi)) / denominator;
    // One step of long division; what remains is exact.
    const double quotient = sum.hi / denominator;
    const DoubleDouble rest = sum + -TwoProduct(quotient, denominator);
    const DoubleDouble mean =
        FastTwoSum(quotient, (rest.hi + rest.lo) / denominator);
    return rounding_.TryRound(mean, sum_error + kMeanBound * std::fabs(mean.hi),
                              out);
  }

  void WriteExactly(const RowPlace& place, double a, double b,
                    std::byte* out) const {
    Real value(a, kSumPrecision);
    Real other(b, kSumPrecision);
    mpfr_mul_si(value.get(), value.get(), place.denominator - place.upper,
                MPFR_RNDN);
    mpfr_mul_si(other.get(), other.get(), place.upper, MPFR_RNDN);
    mpfr_add(value.get(), value.get(), other.get(), MPFR_RNDN);
    mpfr_mul_d(value.get(), value.get(), format_.scale, MPFR_RNDN);
    mpfr_div_si(value.get(), value.get(), place.denominator, MPFR_RNDN);
    if (mpfr_zero_p(value.get()) != 0) return RoundDouble(0, format_.type, out);
    RoundReal(value, format_.type, out);
  }

  const v1::LearnedAbsolute spec_;
  const Table table_;
  const NumberFormat format_;
  const ScaledRounding rounding_;
};

absl::Status CheckTableAndPadding(const v1::LearnedAbsolute& spec,
                                  const Table& table) {
  const absl::Span<const int64_t> shape = table.shape();
  ATTNBIAS_RETURN_IF_ERROR(
      CheckShape("learned_absolute.table", table,
                 {{shape.front(), "positions"}, {shape.back(), "columns"}}));
  const bool is_stretched = spec.interpolation() != v1::INTERPOLATION_NONE;
  if (is_stretched != spec.has_interpolated_length()) {
    return Invalid("learned_absolute.interpolated_length: ",
                   is_stretched ? "not set, want it" : "got one, want none",
                   " with interpolation ", ShortName(spec.interpolation()));
  }
  if (is_stretched && spec.has_padding_idx()) {
    return Invalid("learned_absolute.padding_idx: got ", spec.padding_idx(),
                   ", want none with interpolation ",
                   ShortName(spec.interpolation()));
  }
  const int64_t row = spec.padding_idx();  // 0 if unset
  if (row >= 0 && row < table.rows()) return absl::OkStatus();
  return Invalid("learned_absolute.padding_idx: got ", row,
                 ", want a row of the table, in [0, ", table.rows(), ")");
}

absl::StatusOr<Encoding> DescribeLearnedAbsolute(
    const v1::LearnedAbsolute& spec, const Tables& tables) {
  const Table table = *tables.Get(spec.table());
  ATTNBIAS_RETURN_IF_ERROR(CheckTableAndPadding(spec, table));
  return Encoding{
      .width = table.columns(),
      .has_columns = true,
      .domain = {-spec.offset(), NumRows(spec, table) - spec.offset()},
      .prepare = [=](const NumberFormat& format, const KernelSet& /*kernels*/) {
        return std::make_unique<LearnedAbsoluteEvaluator>(spec, table, format);
      }};
}

const EncodingRegistration kLearnedAbsolute(
    v1::TensorSpec::kLearnedAbsoluteFieldNumber, &DescribeLearnedAbsolute);

}  // namespace
}  // namespace attnbias
