// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/common/interpolation.h"

#include <bit>
#include <cmath>
#include <numeric>

#include "core/encoding/spec/learned_absolute.h"
#include "core/numerics/double_double.h"
#include "core/numerics/real.h"
#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

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
constexpr int kExactPrecision = 2400;

}  // namespace

RowPlace PlaceOf(Interpolation interpolation, int64_t row, int64_t from,
                 int64_t to) {
  int64_t numerator = row;
  int64_t denominator = 1;
  if (interpolation == Interpolation::kLinear) {
    numerator = (2 * row + 1) * from - to;
    denominator = 2 * to;
  } else if (interpolation == Interpolation::kLinearAlignCorners) {
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

bool Interpolator::TryInDoubleDoubles(const RowPlace& place, double a, double b,
                                      std::byte* out) const {
  if (!IsTame(a) || !IsTame(b)) return false;
  const auto denominator = static_cast<double>(place.denominator);
  const DoubleDouble low =
      TwoProduct(a, static_cast<double>(place.denominator - place.upper));
  const DoubleDouble high = TwoProduct(b, static_cast<double>(place.upper));
  if (low.lo == 0 && high.lo == 0) {
    // As every table narrower than F64 has it: the sum is exact, and so is the
    // mean of a table stretched by a power of two.
    const DoubleDouble sum = TwoSum(low.hi, high.hi);
    if (sum.hi == 0) {
      RoundDouble(0, type_, out);
      return true;
    }
    if (scale_ == 1 &&
        std::has_single_bit(static_cast<uint64_t>(place.denominator))) {
      RoundSum({sum.hi / denominator, sum.lo / denominator}, type_, out);
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

void Interpolator::WriteExactly(const RowPlace& place, double a, double b,
                                std::byte* out) const {
  Real value(kExactPrecision);
  Real other(kExactPrecision);
  mpfr_set_d(value.get(), a, MPFR_RNDN);
  mpfr_mul_si(value.get(), value.get(), place.denominator - place.upper,
              MPFR_RNDN);
  mpfr_set_d(other.get(), b, MPFR_RNDN);
  mpfr_mul_si(other.get(), other.get(), place.upper, MPFR_RNDN);
  mpfr_add(value.get(), value.get(), other.get(), MPFR_RNDN);
  mpfr_mul_d(value.get(), value.get(), scale_, MPFR_RNDN);
  mpfr_div_si(value.get(), value.get(), place.denominator, MPFR_RNDN);
  if (mpfr_zero_p(value.get()) != 0) return RoundDouble(0, type_, out);
  RoundReal(value, type_, out);
}

void Interpolator::Write(const RowPlace& place, double a, double b,
                         std::byte* out) const {
  if (!TryInDoubleDoubles(place, a, b, out)) WriteExactly(place, a, b, out);
}

}  // namespace attnbias
