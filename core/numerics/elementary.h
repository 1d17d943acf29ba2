// SPDX-License-Identifier: Apache-2.0
// Logarithms and exponentials with a bound on their error, computed only with additions,
// multiplications and tables, independent of the machine's math library.
#pragma once

#include "core/numerics/double_double.h"

namespace attnbias {

// A number that lies within `bound` of `value`.
struct Estimate {
  DoubleDouble value;
  double bound = 0;
};

// Returns ln x, within kLogBound of its magnitude plus 2^-103. x is normalized and in [2^-900,
// 2^900].
inline constexpr double kLogBound = 0x1p-65;
Estimate LogOf(DoubleDouble x);

// Returns e^x, within kExpBound of its magnitude, for x in [kLeastExponent, kMostExponent].
inline constexpr double kExpBound = 0x1p-76;
inline constexpr double kLeastExponent = -600;
inline constexpr double kMostExponent = 700;
Estimate ExpOf(DoubleDouble x);

// Returns ln x for x > 0: the nearest float, which is never subnormal.
float RoundedLog(float x);

// Return ln(1 + x) for x >= 0, and e^x: the nearest double, if that is normal. A result that
// overflows is infinity.
double RoundedLog1p(DoubleDouble x);
double RoundedExp(double x);

}  // namespace attnbias
