// SPDX-License-Identifier: Apache-2.0
#include "core/numerics/double_double.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/numerics/real.h"
#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

// LogOf and ExpOf look up the value at the nearest of this many steps, and evaluate a series for
// the remainder.
constexpr int kSteps = 128;
// The logarithm table covers mantissas of kLeastMantissa to 2 kLeastMantissa steps. It is centered
// on 1, so that nothing cancels.
constexpr int kLeastMantissa = 90;

struct ElementaryConstants {
  DoubleDouble ln2;
  DoubleDouble ln2_step;  // ln 2 / kSteps
  double steps_per_ln2;
  std::array<DoubleDouble, 2 * kLeastMantissa + 3> log;  // ln(i / kSteps)
  std::array<DoubleDouble, kSteps> exp2;                 // 2^(i / kSteps)
};

ElementaryConstants MakeElementaryConstants() {
  constexpr int kPrecision = 256;
  ElementaryConstants constants = {};
  const Real ln2 = Log(Real(2, kPrecision));
  constants.ln2 = ToDoubleDouble(ln2);
  constants.ln2_step = ToDoubleDouble(ln2 / kSteps);
  constants.steps_per_ln2 = 1 / constants.ln2_step.hi;
  for (size_t i = kLeastMantissa; i < constants.log.size(); ++i) {
    constants.log[i] = ToDoubleDouble(Log(Real(i, kPrecision) / kSteps));
  }
  for (int i = 0; i < kSteps; ++i) {
    constants.exp2[i] = ToDoubleDouble(Pow(Real(2, kPrecision), Real(i, kPrecision) / kSteps));
  }
  return constants;
}

const ElementaryConstants& GetElementaryConstants() {
  static const ElementaryConstants constants = MakeElementaryConstants();
  return constants;
}

// Returns r^2 to within a relative error of 2^-104.
DoubleDouble SquareOf(DoubleDouble r) {
  const DoubleDouble square = TwoProduct(r.hi, r.hi);
  return {square.hi, square.lo + 2 * r.hi * r.lo};
}

// Returns ln(1 + r) for |r| < 2^-7.4. Plain doubles suffice from the cubic term on, which is below
// 2^-16 r: a few roundings of this term are below 2^-67.
DoubleDouble SmallLog1p(DoubleDouble r) {
  const double s = r.hi;
  const DoubleDouble square = SquareOf(r);
  double tail = 1.0 / 10;
  for (int n = 9; n >= 3; --n) tail = 1.0 / n - s * tail;
  return r + (DoubleDouble{-square.hi / 2, -square.lo / 2} + DoubleDouble{square.hi * s * tail, 0});
}

// Returns e^r - 1 for |r| < 2^-8.5, to within 2^-77.
DoubleDouble SmallExpm1(DoubleDouble r) {
  const double s = r.hi;
  const DoubleDouble square = SquareOf(r);
  const double tail =
      1.0 / 6 + s * (1.0 / 24 + s * (1.0 / 120 + s * (1.0 / 720 + s * (1.0 / 5040))));
  return r + (DoubleDouble{square.hi / 2, square.lo / 2} + DoubleDouble{square.hi * s * tail, 0});
}

// Returns the double nearest to function(x), computed with MPFR.
template <typename Function>
double RoundedBy(Function function, DoubleDouble x) {
  // Holds any sum of two doubles.
  const Real exact = Real(x.hi, 2200) + x.lo;
  Real result(std::numeric_limits<double>::digits);
  function(result.get(), exact.get(), MPFR_RNDN);
  return result.ToDouble();
}

}  // namespace

Estimate LogOf(DoubleDouble x) {
  const ElementaryConstants& constants = GetElementaryConstants();
  int exponent = 0;
  double mantissa = std::frexp(x.hi, &exponent);
  if (mantissa < (kLeastMantissa + 0.5) / kSteps) {
    mantissa *= 2;
    --exponent;
  }
  // Any nearby step works, so a tie may go either way.
  const int nearest =
      static_cast<int>(mantissa * kSteps + 0.5);  // NOLINT(bugprone-incorrect-roundings)
  const double divisor = static_cast<double>(nearest) / kSteps;
  // Exact: both are multiples of the mantissa's last place, and are close.
  const double difference = mantissa - divisor;
  const double quotient = difference / divisor;
  const DoubleDouble product = TwoProduct(quotient, divisor);
  const double rest = (difference - product.hi) - product.lo + std::ldexp(x.lo, -exponent);
  const DoubleDouble log1p = SmallLog1p(TwoSum(quotient, rest / divisor));
  const DoubleDouble value =
      constants.ln2 * static_cast<double>(exponent) + constants.log[nearest] + log1p;
  return {value, kLogBound * std::fabs(value.hi) + 0x1p-103};
}

Estimate ExpOf(DoubleDouble x) {
  const ElementaryConstants& constants = GetElementaryConstants();
  const double steps = std::nearbyint(x.hi * constants.steps_per_ln2);
  const DoubleDouble rest = x + -(constants.ln2_step * steps);
  const auto whole = static_cast<int>(steps);
  const int step = whole & (kSteps - 1);
  const DoubleDouble power = constants.exp2[step];
  const DoubleDouble value = power + power * SmallExpm1(rest);
  const double scale = std::ldexp(1.0, (whole - step) / kSteps);
  const DoubleDouble scaled = {value.hi * scale, value.lo * scale};
  return {scaled, kExpBound * scaled.hi};
}

float RoundedLog(float x) {
  float result;
  const Estimate estimate = LogOf({x, 0});
  if (TryRound(estimate.value, estimate.bound, DataType::kF32,
               reinterpret_cast<std::byte*>(&result))) {
    return result;
  }
  const Real log = Log(Real(x, std::numeric_limits<float>::digits));
  return mpfr_get_flt(log.get(), MPFR_RNDN);
}

double RoundedLog1p(DoubleDouble x) {
  if (x.hi == 0) return 0;
  const DoubleDouble sum = DoubleDouble{1, 0} + x;
  double result;
  if (sum.hi < 0x1p900) {
    const Estimate log = LogOf(sum);
    if (TryRoundToDouble(log.value, log.bound, &result)) return result;
  }
  return RoundedBy(mpfr_log1p, x);
}

double RoundedExp(double x) {
  if (x > 710) return std::numeric_limits<double>::infinity();
  if (x < -760) return 0;
  double result;
  if (x >= kLeastExponent && x <= kMostExponent) {
    const Estimate exp = ExpOf({x, 0});
    if (TryRoundToDouble(exp.value, exp.bound, &result)) return result;
  }
  return RoundedBy(mpfr_exp, {x, 0});
}

}  // namespace attnbias
