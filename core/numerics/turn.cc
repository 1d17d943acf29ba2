// SPDX-License-Identifier: Apache-2.0
#include "core/numerics/turn.h"

#include <gmpxx.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace attnbias {
namespace {

using Limbs = std::array<uint64_t, 4>;

// Table angles are multiples of 1/256 turn; up to an eighth of a turn.
constexpr int kStepsPerTurn = 256;
constexpr int kTableSize = kStepsPerTurn / 8 + 1;

struct TurnConstants {
  DoubleDouble two_pi;
  std::array<DoubleDouble, kTableSize> sin;
  std::array<DoubleDouble, kTableSize> cos;
  // 1 / n! for n in [0, 8).
  std::array<DoubleDouble, 8> inverse_factorial;
};

TurnConstants MakeTurnConstants() {
  const RealCacheScope cache_scope;
  constexpr int kPrecision = 320;
  TurnConstants constants;
  Real value(kPrecision);
  Real two_pi(kPrecision);
  mpfr_const_pi(two_pi.get(), MPFR_RNDN);
  mpfr_mul_2ui(two_pi.get(), two_pi.get(), 1, MPFR_RNDN);
  constants.two_pi = ToDoubleDouble(two_pi);
  for (int i = 0; i < kTableSize; ++i) {
    Real sine(kPrecision);
    Real cosine(kPrecision);
    mpfr_mul_ui(value.get(), two_pi.get(), i, MPFR_RNDN);
    mpfr_div_ui(value.get(), value.get(), kStepsPerTurn, MPFR_RNDN);
    mpfr_sin_cos(sine.get(), cosine.get(), value.get(), MPFR_RNDN);
    constants.sin[i] = ToDoubleDouble(sine);
    constants.cos[i] = ToDoubleDouble(cosine);
  }
  mpfr_set_ui(value.get(), 1, MPFR_RNDN);
  for (size_t n = 0; n < constants.inverse_factorial.size(); ++n) {
    if (n > 1) mpfr_div_ui(value.get(), value.get(), n, MPFR_RNDN);
    constants.inverse_factorial[n] = ToDoubleDouble(value);
  }
  return constants;
}

const TurnConstants& GetTurnConstants() {
  static const TurnConstants constants = MakeTurnConstants();
  return constants;
}

// Modulo 2^256.
void Negate(Limbs& limbs) { mpn_neg(limbs.data(), limbs.data(), limbs.size()); }

// The 64 bits from `bit` (counted from the least significant) upwards; zeros
// below bit 0.
uint64_t BitsFrom(const Limbs& limbs, int bit) {
  uint64_t bits = 0;
  const int limb = bit >> 6;  // rounds towards minus infinity
  const int shift = bit & 63;
  if (limb >= 0) bits = limbs[limb] >> shift;
  if (shift != 0 && limb + 1 >= 0 && limb + 1 < 4) {
    bits |= limbs[limb + 1] << (64 - shift);
  }
  return bits;
}

int HighestBit(const Limbs& limbs) {
  for (int i = 3; i >= 0; --i) {
    if (limbs[i] != 0) return 64 * i + 63 - std::countl_zero(limbs[i]);
  }
  return -1;
}

// limbs * 2^-256 to a relative 2^-105, for a highest bit set.
DoubleDouble ToTurns(const Limbs& limbs, int highest_bit) {
  // 53 bits, then 64 of which conversion keeps 53.
  const int first = highest_bit - 52;
  const double hi =
      static_cast<double>(BitsFrom(limbs, first) & ((uint64_t{1} << 53) - 1));
  const double lo = static_cast<double>(BitsFrom(limbs, first - 64));
  const double scale = std::ldexp(1.0, first - 256);
  return FastTwoSum(hi * scale, lo * (scale * 0x1p-64));
}

// Taylor series around 0 for |y| <= pi / 256; what they leave out is below
// 2^-110. From the sixth power on a term is small enough for plain doubles.
SinCos SeriesOf(DoubleDouble y) {
  const auto& inverse = GetTurnConstants().inverse_factorial;
  const DoubleDouble square = y * y;
  const double s = square.hi;
  const DoubleDouble sin_tail = {
      -s * (1.0 / 5040 - s * (1.0 / 362880 - s * (1.0 / 39916800))), 0};
  const DoubleDouble cos_tail = {
      s * (1.0 / 40320 - s * (1.0 / 3628800 - s * (1.0 / 479001600))), 0};
  const DoubleDouble sin_factor =
      -inverse[3] + square * (inverse[5] + sin_tail);
  const DoubleDouble cos_factor =
      -inverse[2] + square * (inverse[4] + square * (-inverse[6] + cos_tail));
  return {y + y * (square * sin_factor),
          DoubleDouble{1, 0} + square * cos_factor, 0};
}

}  // namespace

int ShiftOf(const Real& turns) {
  // Below 2^-64 before the shift, 2^62 of them are below a quarter after it,
  // and an eighth without it.
  if (mpfr_zero_p(turns.get()) != 0) return 0;
  return static_cast<int>(
      std::max<mpfr_exp_t>(-64 - mpfr_get_exp(turns.get()), 0));
}

TurnFraction FractionOf(const Real& turns, int shift) {
  Real scaled(static_cast<int>(mpfr_get_prec(turns.get())));
  mpfr_frac(scaled.get(), turns.get(), MPFR_RNDZ);
  mpfr_mul_2ui(scaled.get(), scaled.get(), 256 + shift, MPFR_RNDZ);
  mpz_class integer;
  mpfr_get_z(integer.get_mpz_t(), scaled.get(), MPFR_RNDZ);
  TurnFraction fraction = {.limbs = {}, .shift = shift};
  mpz_export(fraction.limbs.data(), nullptr, /*order=*/-1, sizeof(uint64_t),
             /*endian=*/0, /*nails=*/0, integer.get_mpz_t());
  if (sgn(integer) < 0) Negate(fraction.limbs);
  return fraction;
}

ReducedAngle AngleAt(const TurnFraction& turns_per_position, int64_t position,
                     const TurnFraction& origin) {
  const bool backwards = position < 0;
  const uint64_t distance =
      backwards ? -static_cast<uint64_t>(position) : position;
  Limbs fraction;
  mpn_mul_1(fraction.data(), turns_per_position.limbs.data(), fraction.size(),
            distance);
  if (backwards) Negate(fraction);
  mpn_add_n(fraction.data(), fraction.data(), origin.limbs.data(),
            fraction.size());
  ReducedAngle angle;
  if (turns_per_position.shift == 0) {
    // To the nearest quarter: add an eighth, cut, and take the eighth off
    // again.
    const uint64_t shifted = fraction[3] + (uint64_t{1} << 61);
    angle.quarter = static_cast<int>(shifted >> 62);
    fraction[3] -= static_cast<uint64_t>(angle.quarter) << 62;
  }
  const bool negative = (fraction[3] >> 63) != 0;
  if (negative) Negate(fraction);
  const int highest_bit = HighestBit(fraction);
  // The frequency's own error times the distance, the origin's, and ToTurns'.
  const double absolute = static_cast<double>(distance) + 1;
  angle.error = highest_bit < 0 ? std::numeric_limits<double>::infinity()
                                : std::ldexp(absolute, -highest_bit) + 0x1p-104;
  if (highest_bit < 0) return angle;
  angle.turns = ToTurns(fraction, highest_bit);
  angle.turns.hi = std::ldexp(angle.turns.hi, -turns_per_position.shift);
  angle.turns.lo = std::ldexp(angle.turns.lo, -turns_per_position.shift);
  if (negative) angle.turns = -angle.turns;
  return angle;
}

SinCos SinCosOf(const ReducedAngle& angle) {
  const TurnConstants& constants = GetTurnConstants();
  const bool negative = angle.turns.hi < 0;
  const DoubleDouble turns = negative ? -angle.turns : angle.turns;
  const int step = (static_cast<int>(turns.hi * (2 * kStepsPerTurn)) + 1) / 2;
  const double nearest = static_cast<double>(step) / kStepsPerTurn;
  const DoubleDouble rest = turns + DoubleDouble{-nearest, 0};
  const SinCos small = SeriesOf(rest * constants.two_pi);
  DoubleDouble sine = small.sin;
  DoubleDouble cosine = small.cos;
  if (step != 0) {
    const DoubleDouble table_sin = constants.sin[step];
    const DoubleDouble table_cos = constants.cos[step];
    sine = table_sin * small.cos + table_cos * small.sin;
    cosine = table_cos * small.cos + -(table_sin * small.sin);
  }
  if (negative) sine = -sine;
  if ((angle.quarter & 1) != 0) {
    std::swap(sine, cosine);
    cosine = -cosine;
  }
  if ((angle.quarter & 2) != 0) {
    sine = -sine;
    cosine = -cosine;
  }
  return {sine, cosine, kSinCosBound + 2 * angle.error};
}

}  // namespace attnbias
