// SPDX-License-Identifier: Apache-2.0
// Arithmetic on unevaluated sums of two doubles, which have about 106 significant bits. Logarithms
// and exponentials use only additions, multiplications and tables, not the machine's math library.
//
// Error bounds are relative to the exact result unless stated otherwise, with u = 2^-53, and hold
// if nothing overflows or underflows. Needs round-to-nearest and no contraction of a * b + c.
#pragma once

#include <cmath>

namespace attnbias {

// The number hi + lo, |lo| <= ulp(hi) / 2.
struct DoubleDouble {
  double hi = 0;
  double lo = 0;
};

// Returns a + b exactly, for |a| >= |b| or a = 0.
inline DoubleDouble FastTwoSum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

// Returns a + b exactly.
inline DoubleDouble TwoSum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

// Splits a into two halves of at most 27 bits (Veltkamp).
inline DoubleDouble Split(double a) {
  const double scaled = a * (0x1p27 + 1);
  const double hi = scaled - (scaled - a);
  return {hi, a - hi};
}

// Returns a * b exactly; magnitudes must be 0 or in [2^-900, 2^900]. std::fma would be a call.
inline DoubleDouble TwoProduct(double a, double b) {
  const double product = a * b;
  const DoubleDouble x = Split(a);
  const DoubleDouble y = Split(b);
  const double first = x.hi * y.hi - product;
  return {product, (first + x.hi * y.lo + x.lo * y.hi) + x.lo * y.lo};
}

inline DoubleDouble operator-(DoubleDouble a) { return {-a.hi, -a.lo}; }

// Within 4 u^2 (|a| + |b|): does not compensate for cancellation.
inline DoubleDouble operator+(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble sum = TwoSum(a.hi, b.hi);
  return FastTwoSum(sum.hi, sum.lo + (a.lo + b.lo));
}

// Within 4 u^2.
inline DoubleDouble operator*(DoubleDouble a, double b) {
  const DoubleDouble product = TwoProduct(a.hi, b);
  return FastTwoSum(product.hi, product.lo + a.lo * b);
}

// Within 8 u^2.
inline DoubleDouble operator*(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble product = TwoProduct(a.hi, b.hi);
  return FastTwoSum(product.hi, product.lo + (a.hi * b.lo + a.lo * b.hi));
}

// Within 32 u^2; exact if b is a power of two.
inline DoubleDouble operator/(DoubleDouble a, DoubleDouble b) {
  const double quotient = a.hi / b.hi;
  const DoubleDouble rest = a + -(b * quotient);
  return FastTwoSum(quotient, rest.hi / b.hi);
}

// A number that lies within `bound` of `value`.
struct Estimate {
  DoubleDouble value;
  double bound = 0;
};

// Returns ln x, with an error of at most kLogBound times its magnitude plus 2^-103. x must be
// normalized and in [2^-900, 2^900].
inline constexpr double kLogBound = 0x1p-65;
Estimate LogOf(DoubleDouble x);

// Returns e^x, with an error of at most kExpBound times its magnitude, for x in [kLeastExponent,
// kMostExponent].
inline constexpr double kExpBound = 0x1p-76;
inline constexpr double kLeastExponent = -600;
inline constexpr double kMostExponent = 700;
Estimate ExpOf(DoubleDouble x);

// Returns the float nearest to ln x, for x > 0. It is never subnormal.
float RoundedLog(float x);

// Return ln(1 + x) for x >= 0 and e^x, respectively: the nearest double, if that is normal. A
// result that overflows is infinity.
double RoundedLog1p(DoubleDouble x);
double RoundedExp(double x);

}  // namespace attnbias
