// SPDX-License-Identifier: Apache-2.0
// Angles in revolutions, reduced by exact integer multiplication.
//
// An angular frequency is stored as revolutions per position, to 256 bits. Its product with a
// position is exact, and the bits below one revolution are the angle, without argument reduction or
// loss of accuracy at large positions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "core/numerics/double_double.h"
#include "core/numerics/real.h"

namespace attnbias {

// limbs x 2^exponent, to within a relative error of 2^-254. The highest bit is set.
struct FloatingRevolutions {
  std::array<uint64_t, 4> limbs{};
  int exponent = 0;
  bool is_negative = false;
};

// Rounds `revolutions`, which must not be 0 and must have a relative error of at most 2^-256.
FloatingRevolutions FloatingOf(const Real& revolutions);

// The number count x 2^exponent, |count| <= 2^62.
struct BinaryPosition {
  int64_t count = 0;
  int exponent = 0;
};

// Returns a + b, or nullopt if no BinaryPosition equals it. Neither may be above 2^1000.
std::optional<BinaryPosition> BinarySum(double a, double b);

// An angle as quarter revolutions plus a remainder of at most an eighth of a revolution.
struct ReducedAngle {
  int quarter = 0;           // in [0, 4)
  DoubleDouble revolutions;  // in [-1/8, 1/8]
  // Relative error of `revolutions`.
  double error = 0;
};

// A position, and the revolutions per unit of position. Neither is 0.
struct AngleTerm {
  FloatingRevolutions revolutions_per_position;
  BinaryPosition position;
};

// Returns the sum of the angles of 1 to kMostAngleTerms positions.
inline constexpr size_t kMostAngleTerms = 4;
ReducedAngle AngleOf(absl::Span<const AngleTerm> terms);

struct SinCos {
  DoubleDouble sin;
  DoubleDouble cos;
  // Relative error of sine and cosine. Infinite if the angle is too close to a multiple of a
  // quarter revolution for this arithmetic.
  double error = 0;
};

// Relative error of the sine and cosine of an exact angle.
inline constexpr double kSinCosBound = 0x1p-97;

SinCos SinCosOf(const ReducedAngle& angle);

}  // namespace attnbias
