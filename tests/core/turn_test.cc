// SPDX-License-Identifier: Apache-2.0
#include "core/numerics/turn.h"

#include <random>

#include "gtest/gtest.h"
#include "tests/core/mpfr_oracle.h"

namespace attnbias::turn_test {
namespace {

TurnFraction WholeFractionOf(const Real& turns) {
  return FractionOf(turns, ShiftOf(turns));
}

// The relative error of `value`, as a power of two.
double ErrorExponent(DoubleDouble value, mpfr_ptr exact) {
  Number error;
  mpfr_sub_d(error, exact, value.hi, MPFR_RNDN);
  mpfr_sub_d(error, error, value.lo, MPFR_RNDN);
  if (mpfr_zero_p(error) != 0) return -1000;
  mpfr_div(error, error, exact, MPFR_RNDN);
  mpfr_abs(error, error, MPFR_RNDN);
  mpfr_log2(error, error, MPFR_RNDN);
  return mpfr_get_d(error, MPFR_RNDN);
}

// Compares both functions of an angle with MPFR's, and returns the worse error.
double WorstError(const SinCos& value, mpfr_ptr radians) {
  Number sine;
  Number cosine;
  mpfr_sin_cos(sine, cosine, radians, MPFR_RNDN);
  return std::max(ErrorExponent(value.sin, sine),
                  ErrorExponent(value.cos, cosine));
}

TEST(SinCosOf, KeepsItsBoundAtAnyPosition) {
  std::mt19937_64 random(3);
  Number radians_per_position;
  Number angle;
  Number two_pi;
  mpfr_const_pi(two_pi, MPFR_RNDN);
  mpfr_mul_2ui(two_pi, two_pi, 1, MPFR_RNDN);
  double worst = -1000;
  for (int i = 0; i < 20000; ++i) {
    mpfr_set_d(radians_per_position,
               std::exp2(-static_cast<double>(random() % 6400) / 100),
               MPFR_RNDN);
    mpfr_sqrt(radians_per_position, radians_per_position, MPFR_RNDN);
    Real turns(400);
    mpfr_div(turns.get(), radians_per_position, two_pi, MPFR_RNDN);
    const auto position =
        static_cast<int64_t>(random() >> (23 + random() % 40)) *
        (i % 2 == 0 ? 1 : -1);
    if (position == 0) continue;
    const SinCos value = SinCosOf(AngleAt(WholeFractionOf(turns), position));
    mpfr_mul_si(angle, radians_per_position, position, MPFR_RNDN);
    const double error = WorstError(value, angle);
    ASSERT_LE(error, std::log2(value.error)) << "position " << position;
    worst = std::max(worst, error);
  }
  // Not so loose a bound that a lost digit would go unnoticed.
  EXPECT_GT(worst, std::log2(kSinCosBound) - 8);
}

// A turn of nearly a third of a position's: all octants, both signs.
TEST(SinCosOf, CoversEveryOctant) {
  Number angle;
  Number two_pi;
  mpfr_const_pi(two_pi, MPFR_RNDN);
  mpfr_mul_2ui(two_pi, two_pi, 1, MPFR_RNDN);
  for (int step = 0; step < 1024; ++step) {
    Real turns(400);
    mpfr_set_ui(turns.get(), step, MPFR_RNDN);
    mpfr_div_ui(turns.get(), turns.get(), 1024, MPFR_RNDN);
    mpfr_add_d(turns.get(), turns.get(), 0x1p-40, MPFR_RNDN);
    mpfr_mul(angle, turns.get(), two_pi, MPFR_RNDN);
    const SinCos value = SinCosOf(AngleAt(WholeFractionOf(turns), 1));
    ASSERT_LE(WorstError(value, angle), std::log2(value.error)) << step;
    mpfr_neg(angle, angle, MPFR_RNDN);
    const SinCos mirrored = SinCosOf(AngleAt(WholeFractionOf(turns), -1));
    ASSERT_LE(WorstError(mirrored, angle), std::log2(mirrored.error)) << step;
  }
}

TEST(AngleAt, SaysThatItCannotTellAnExactQuarter) {
  Real turns(300);
  mpfr_set_d(turns.get(), 0.25, MPFR_RNDN);
  EXPECT_GT(AngleAt(WholeFractionOf(turns), 1).error, 1);
}

}  // namespace
}  // namespace attnbias::turn_test
