// SPDX-License-Identifier: Apache-2.0
// Angles in turns, reduced by exact integer multiplication.
//
// An angular frequency is held as the fractional part of its turns per
// position, to 256 bits. Multiplied by an integer position it gives the
// position's angle modulo one turn: no argument reduction, no loss at large
// positions. Turns too small for any position to complete one are held times a
// power of two, so that their bits are not lost. For positions that are not
// integers the turns are a floating-point number of 256 bits.
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

struct TurnFraction {
  // In units of 2^-(256 + shift), least significant limb first, modulo 2^256.
  std::array<uint64_t, 4> limbs{};
  int shift = 0;
};

// Returns the shift at which `turns` times any position, and half a position
// more, stay below an eighth of a turn; 0 if no shift is needed.
int ShiftOf(const Real& turns);

// Returns the fractional part of `turns`, of either sign, within
// 2^-(256 + shift).
TurnFraction FractionOf(const Real& turns, int shift);

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

// Returns the angle at `position`, |position| <= 2^62, counted from an origin
// whose own angle has the same shift.
ReducedAngle AngleAt(const TurnFraction& turns_per_position, int64_t position,
                     const TurnFraction& origin = {});

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
