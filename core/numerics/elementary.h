// SPDX-License-Identifier: Apache-2.0
// Logarithms and exponentials with a bound on their error, from additions,
// multiplications and tables alone: no machine's library is asked.
#pragma once

#include "core/numerics/double_double.h"

namespace attnbias {

// A number that lies within `bound` of `value`.
struct Estimate {
  DoubleDouble value;
  double bound = 0;
};

// The logarithm of x, which is normalised and in [2^-900, 2^900]: within
// kLogBound of its magnitude and 2^-103.
inline constexpr double kLogBound = 0x1p-65;
Estimate LogOf(DoubleDouble x);

// e^x for x in [kLeastExponent, kMostExponent]: within kExpBound of its
// magnitude.
inline constexpr double kExpBound = 0x1p-76;
inline constexpr double kLeastExponent = -600;
inline constexpr double kMostExponent = 700;
Estimate ExpOf(DoubleDouble x);

// ln x for x > 0: the nearest float, which is never subnormal.
float RoundedLog(float x);

// ln(1 + x) for x >= 0, and e^x: the nearest double, where that is normal; any
// x whose result overflows gives infinity.
double RoundedLog1p(DoubleDouble x);
double RoundedExp(double x);

}  // namespace attnbias
