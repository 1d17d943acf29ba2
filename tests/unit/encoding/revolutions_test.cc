// SPDX-License-Identifier: Apache-2.0
#include "core/numerics/revolutions.h"

#include <optional>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/encoding/mpfr_oracle.h"

namespace attnbias::revolutions_test {
namespace {

ReducedAngle AngleAt(const Real& revolutions, int64_t position) {
  const AngleTerm term[] = {{FloatingOf(revolutions), {position}}};
  return AngleOf(term);
}

struct TwoPi : Number {
  TwoPi() {
    mpfr_const_pi(*this, MPFR_RNDN);
    mpfr_mul_2ui(*this, *this, 1, MPFR_RNDN);
  }
};

// Returns the relative error of `value`, as a power of two.
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

// Compares both functions of an angle with MPFR's, and returns the larger error.
double WorstError(const SinCos& value, mpfr_ptr radians) {
  Number sine;
  Number cosine;
  mpfr_sin_cos(sine, cosine, radians, MPFR_RNDN);
  return std::max(ErrorExponent(value.sin, sine), ErrorExponent(value.cos, cosine));
}

TEST(SinCosOf, StaysWithinItsBoundAtAnyPosition) {
  std::mt19937_64 random(3);
  Number radians_per_position;
  Number angle;
  TwoPi two_pi;
  double worst = -1000;
  for (int i = 0; i < 20000; ++i) {
    mpfr_set_d(radians_per_position, std::exp2(-static_cast<double>(random() % 6400) / 100),
               MPFR_RNDN);
    mpfr_sqrt(radians_per_position, radians_per_position, MPFR_RNDN);
    Real revolutions(400);
    mpfr_div(revolutions.get(), radians_per_position, two_pi, MPFR_RNDN);
    const auto position =
        static_cast<int64_t>(random() >> (23 + random() % 40)) * (i % 2 == 0 ? 1 : -1);
    if (position == 0) continue;
    const SinCos value = SinCosOf(AngleAt(revolutions, position));
    mpfr_mul_si(angle, radians_per_position, position, MPFR_RNDN);
    const double error = WorstError(value, angle);
    ASSERT_LE(error, std::log2(value.error)) << "position " << position;
    worst = std::max(worst, error);
  }
  // The bound is tight enough to notice a lost digit.
  EXPECT_GT(worst, std::log2(kSinCosBound) - 8);
}

// Nearly a third of a revolution per position, which covers all octants and both signs.
TEST(SinCosOf, CoversEveryOctant) {
  Number angle;
  TwoPi two_pi;
  for (int step = 0; step < 1024; ++step) {
    Real revolutions(400);
    mpfr_set_ui(revolutions.get(), step, MPFR_RNDN);
    mpfr_div_ui(revolutions.get(), revolutions.get(), 1024, MPFR_RNDN);
    mpfr_add_d(revolutions.get(), revolutions.get(), 0x1p-40, MPFR_RNDN);
    mpfr_mul(angle, revolutions.get(), two_pi, MPFR_RNDN);
    const SinCos value = SinCosOf(AngleAt(revolutions, 1));
    ASSERT_LE(WorstError(value, angle), std::log2(value.error)) << step;
    mpfr_neg(angle, angle, MPFR_RNDN);
    const SinCos mirrored = SinCosOf(AngleAt(revolutions, -1));
    ASSERT_LE(WorstError(mirrored, angle), std::log2(mirrored.error)) << step;
  }
}

// Frequencies of either sign from the smallest to the largest, at positions from the finest to the
// farthest.
TEST(SinCosOf, StaysWithinItsBoundAtFractionalPositions) {
  std::mt19937_64 random(4);
  TwoPi two_pi;
  Number angle;
  for (int i = 0; i < 20000; ++i) {
    const BinaryPosition position = {
        .count = static_cast<int64_t>(random() >> (2 + random() % 60)) * (i % 2 == 0 ? 1 : -1),
        .exponent = static_cast<int>(random() % 240) - 200};
    if (position.count == 0) continue;
    mpfr_set_d(angle, std::exp2(static_cast<double>(random() % 40000) / 100 - 320), MPFR_RNDN);
    mpfr_sqrt(angle, angle, MPFR_RNDN);
    if (i % 3 == 0) mpfr_neg(angle, angle, MPFR_RNDN);
    Real revolutions(400);
    mpfr_div(revolutions.get(), angle, two_pi, MPFR_RNDN);
    mpfr_mul_si(angle, angle, position.count, MPFR_RNDN);
    mpfr_mul_2si(angle, angle, position.exponent, MPFR_RNDN);
    const AngleTerm term[] = {{FloatingOf(revolutions), position}};
    const SinCos value = SinCosOf(AngleOf(term));
    ASSERT_LE(WorstError(value, angle), std::log2(value.error))
        << position.count << " 2^" << position.exponent;
    // Only an angle near a multiple of a quarter revolution needs more digits.
    if (mpfr_cmpabs_ui(angle, 1 << 20) < 0) {
      ASSERT_LT(value.error, 0x1p-80) << position.count;
    }
  }
}

// Covers all signs and sizes, including cases in which the larger terms cancel.
TEST(SinCosOf, StaysWithinItsBoundAtSums) {
  std::mt19937_64 random(6);
  TwoPi two_pi;
  Number sum;
  Number radians;
  int told = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<AngleTerm> terms;
    mpfr_set_ui(sum, 0, MPFR_RNDN);
    const auto add = [&](double weight, const BinaryPosition& position) {
      Real revolutions(400);
      mpfr_set_d(revolutions.get(), weight, MPFR_RNDN);
      mpfr_div(revolutions.get(), revolutions.get(), two_pi, MPFR_RNDN);
      terms.push_back({FloatingOf(revolutions), position});
      mpfr_set_d(radians, weight, MPFR_RNDN);
      mpfr_mul_si(radians, radians, position.count, MPFR_RNDN);
      mpfr_mul_2si(radians, radians, position.exponent, MPFR_RNDN);
      mpfr_add(sum, sum, radians, MPFR_RNDN);
    };
    const int smallness = static_cast<int>(random() % 300);
    for (uint64_t n = 1 + random() % kMostAngleTerms; n > 0; --n) {
      const double weight = std::ldexp(static_cast<double>(random() >> 11),
                                       -static_cast<int>(random() % 60) - smallness) *
                            (random() % 2 == 0 ? 1 : -1);
      if (weight == 0) continue;
      const BinaryPosition position = {
          .count = static_cast<int64_t>(random() >> (2 + random() % 50)) + 1,
          .exponent = -static_cast<int>(random() % 60)};
      add(weight, position);
      if (i % 4 == 0 && terms.size() + 1 < kMostAngleTerms) {
        // Subtracts all of it except 2^-40.
        add(weight * (0x1p-40 - 1), position);
        --n;
        if (n == 0) break;
      }
    }
    if (terms.empty() || mpfr_zero_p(static_cast<mpfr_ptr>(sum)) != 0) continue;
    const SinCos value = SinCosOf(AngleOf(terms));
    ASSERT_LE(WorstError(value, sum), std::log2(value.error)) << i;
    told += value.error < 0x1p-80 ? 1 : 0;
  }
  EXPECT_GT(told, 19000);
}

TEST(BinarySum, IsExactOrEmpty) {
  const auto expect = [](double a, double b, int64_t count, int exponent) {
    const std::optional<BinaryPosition> sum = BinarySum(a, b);
    ASSERT_TRUE(sum.has_value()) << a << " " << b;
    EXPECT_EQ(sum->count, count);
    EXPECT_EQ(sum->exponent, exponent);
  };
  expect(0, -0.0, 0, 0);
  expect(0.5, -0.5, 0, 0);
  expect(-6, 0, -3, 1);
  expect(0x1p40, 0, 1, 40);
  expect(0x1p-149, 0, 1, -149);
  expect(5e-324, 0, 1, -1074);
  expect(0.1, 0, 3602879701896397, -55);
  expect(0x1p40, 0x1p-21, (int64_t{1} << 61) + 1, -21);
  expect(0x1p40, -0x1p-22, (int64_t{1} << 62) - 1, -22);
  EXPECT_FALSE(BinarySum(0x1p40, 0x1p-22).has_value());
  EXPECT_FALSE(BinarySum(0x1p40, 0.1).has_value());
  EXPECT_FALSE(BinarySum(1, 5e-324).has_value());
}

TEST(AngleOf, ReportsUnboundedErrorAtExactQuarter) {
  Real revolutions(300);
  mpfr_set_d(revolutions.get(), 0.25, MPFR_RNDN);
  EXPECT_GT(AngleAt(revolutions, 1).error, 1);
}

}  // namespace
}  // namespace attnbias::revolutions_test
