// SPDX-License-Identifier: Apache-2.0
// Rounds exact values to an element type: once, to nearest, ties to even.
//
// Keeps subnormals; overflow becomes infinity, and a negative value that underflows becomes -0, as
// in IEEE 754. `type` must be a floating-point type; `out` receives SizeOf(type) little-endian
// bytes at any alignment.
#pragma once

#include <cmath>
#include <cstddef>

#include "core/numerics/double_double.h"
#include "core/tensor/data_type.h"

namespace attnbias {

// Writes `value`, which may be any double.
void RoundDouble(double value, DataType type, std::byte* out);

// Writes the exact sum of value.hi and value.lo, which must be finite.
void RoundSum(DoubleDouble value, DataType type, std::byte* out);

// Writes the exact product of a and b, which must be finite.
void RoundProduct(double a, double b, DataType type, std::byte* out);

// Returns `bound` widened by the error of adding it to value.lo.
inline double OutwardReach(DoubleDouble value, double bound) {
  if (bound == 0) return 0;
  return bound * (1 + 0x1p-50) + 0x1p-105 * std::fabs(value.hi);
}

// Writes the one number to which every real within `bound` of value.hi + value.lo rounds, and
// returns true. Writes nothing and returns false if there are, or may be, several. The magnitude of
// `value` must be 0 or in [2^-900, 2^900].
[[nodiscard]] bool TryRound(DoubleDouble value, double bound, DataType type, std::byte* out);

// TryRound to F64, inline for use in loops.
[[nodiscard]] inline bool TryRoundToDouble(DoubleDouble value, double bound, double* out) {
  const double reach = OutwardReach(value, bound);
  const double high = value.hi + (value.lo + reach);
  const double low = value.hi + (value.lo - reach);
  // Zeros may differ in sign.
  if (high != low || high == 0) return false;
  *out = high;
  return true;
}

}  // namespace attnbias
