// SPDX-License-Identifier: Apache-2.0
// Angles in turns, reduced by exact integer multiplication.
//
// An angular frequency is held as its turns per position, to 256 bits. Its
// product with a position is exact, and of the product all bits below one turn
// count: no argument reduction, no loss at large positions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "core/numerics/double_double.h"
#include "core/numerics/real.h"
#include "core/tensor/positions.h"

namespace attnbias {

// limbs x 2^exponent, within a relative 2^-254. The highest bit is set.
struct FloatingTurn {
  std::array<uint64_t, 4> limbs{};
  int exponent = 0;
  bool is_negative = false;
};

// Rounds `turns`, which is not 0 and within a relative 2^-256.
FloatingTurn FloatingOf(const Real& turns);

// The number count x 2^exponent, |count| <= 2^62.
struct BinaryPosition {
  int64_t count = 0;
  int exponent = 0;
};

// Returns a + b, if there is such a number. Neither is above 2^1000.
std::optional<BinaryPosition> BinarySum(double a, double b);

// An angle as quarter turns plus a rest of at most an eighth.
struct ReducedAngle {
  int quarter = 0;     // in [0, 4)
  DoubleDouble turns;  // in [-1/8, 1/8]
  // Of `turns`, relative.
  double error = 0;
};

// A position, and the turns of each of its units. Neither is 0.
struct TurnTerm {
  FloatingTurn turns_per_position;
  BinaryPosition position;
};

// Returns the sum of the angles of 1 to kMostTurnTerms positions.
inline constexpr size_t kMostTurnTerms = 4;
ReducedAngle AngleOf(absl::Span<const TurnTerm> terms);

struct SinCos {
  DoubleDouble sin;
  DoubleDouble cos;
  // Of either, relative. Infinite where an angle so near a multiple of a
  // quarter turn lies outside of what this arithmetic resolves.
  double error = 0;
};

// What sine and cosine lose of an angle known exactly.
inline constexpr double kSinCosBound = 0x1p-97;

SinCos SinCosOf(const ReducedAngle& angle);

}  // namespace attnbias
