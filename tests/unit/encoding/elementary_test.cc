// SPDX-License-Identifier: Apache-2.0
#include <random>

#include "core/numerics/double_double.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/mpfr_oracle.h"

namespace attnbias::elementary_test {
namespace {

constexpr int kSamples = 200000;
// Number of roundings compared with MPFR at 160 bits; the hardest double to round needs about 120.
constexpr int kRoundings = 60000;
constexpr int kPrecision = 160;

// Returns a positive double-double with any mantissa and an exponent in [-range, range).
DoubleDouble Sample(std::mt19937_64& random, int range) {
  const double hi = std::ldexp(1 + std::ldexp(static_cast<double>(random() >> 12), -52),
                               static_cast<int>(random() % (2 * range)) - range);
  const double part = std::ldexp(static_cast<double>(random() >> 11), -53);
  return {hi, hi * 0x1p-54 * (2 * part - 1)};
}

void Set(mpfr_ptr number, DoubleDouble value) {
  mpfr_set_d(number, value.hi, MPFR_RNDN);
  mpfr_add_d(number, number, value.lo, MPFR_RNDN);
}

// Returns |value - exact| as a fraction of the bound.
double PartOfBound(const Estimate& estimate, mpfr_ptr exact) {
  Number error(256);
  mpfr_sub_d(error, exact, estimate.value.hi, MPFR_RNDN);
  mpfr_sub_d(error, error, estimate.value.lo, MPFR_RNDN);
  return std::fabs(mpfr_get_d(error, MPFR_RNDN)) / estimate.bound;
}

TEST(LogOf, StaysWithinItsErrorBound) {
  std::mt19937_64 random(1);
  Number exact(256);
  double worst = 0;
  for (int i = 0; i < kSamples; ++i) {
    // Half of the values are near 1, where logarithms vanish.
    DoubleDouble x = Sample(random, i % 2 == 0 ? 1 : 900);
    if (i % 4 == 0) x.hi = 1 + (x.hi - 1) * std::ldexp(1, -(i / 4 % 50));
    x = FastTwoSum(x.hi, x.lo);
    Set(exact, x);
    mpfr_log(exact, exact, MPFR_RNDN);
    worst = std::max(worst, PartOfBound(LogOf(x), exact));
  }
  EXPECT_LT(worst, 1);
  // The bound is tight enough to catch a lost digit.
  EXPECT_GT(worst, 0x1p-4);
}

TEST(LogOf, StaysWithinItsErrorBoundBetweenSteps) {
  Number exact(256);
  for (int i = 0; i <= 4096; ++i) {
    for (const double nudge : {-0x1p-52, 0.0, 0x1p-52}) {
      const DoubleDouble x = {(0.5 + i / 4096.0) * (1 + nudge), 0};
      Set(exact, x);
      mpfr_log(exact, exact, MPFR_RNDN);
      ASSERT_LT(PartOfBound(LogOf(x), exact), 1) << x.hi;
    }
  }
}

TEST(ExpOf, StaysWithinItsErrorBound) {
  std::mt19937_64 random(2);
  Number exact(256);
  double worst = 0;
  for (int i = 0; i < kSamples; ++i) {
    const double sign = i % 2 == 0 ? 1 : -1;
    DoubleDouble x = Sample(random, i % 4 < 2 ? 3 : 9);
    if (x.hi > (sign > 0 ? kMostExponent : -kLeastExponent)) {
      x = {x.hi / 2, x.lo / 2};
    }
    x = {sign * x.hi, sign * x.lo};
    Set(exact, x);
    mpfr_exp(exact, exact, MPFR_RNDN);
    worst = std::max(worst, PartOfBound(ExpOf(x), exact));
  }
  EXPECT_LT(worst, 1);
  EXPECT_GT(worst, 0x1p-4);
}

TEST(RoundedLog, IsTheNearestFloat) {
  std::mt19937_64 random(5);
  Number exact(kPrecision);
  for (int i = 0; i < kRoundings; ++i) {
    const auto x = static_cast<float>(Sample(random, i % 2 == 0 ? 1 : 120).hi);
    mpfr_set_flt(exact, x, MPFR_RNDN);
    mpfr_log(exact, exact, MPFR_RNDN);
    ASSERT_EQ(RoundedLog(x), mpfr_get_flt(exact, MPFR_RNDN)) << x;
  }
  EXPECT_EQ(RoundedLog(1), 0);
}

TEST(RoundedLog1p, IsTheNearestDouble) {
  std::mt19937_64 random(3);
  Number exact(kPrecision);
  for (int i = 0; i < kRoundings; ++i) {
    const DoubleDouble x = Sample(random, i % 2 == 0 ? 12 : 1000);
    Set(exact, x);
    mpfr_log1p(exact, exact, MPFR_RNDN);
    ASSERT_EQ(RoundedLog1p(x), mpfr_get_d(exact, MPFR_RNDN)) << x.hi;
  }
  EXPECT_EQ(RoundedLog1p({0, 0}), 0);
}

TEST(RoundedExp, IsTheNearestDouble) {
  std::mt19937_64 random(4);
  Number exact(kPrecision);
  for (int i = 0; i < kRoundings; ++i) {
    const double x = Sample(random, i % 2 == 0 ? 4 : 9).hi;
    for (const double signed_x : {x, -x}) {
      if (std::fabs(signed_x) > 700) continue;
      mpfr_set_d(exact, signed_x, MPFR_RNDN);
      mpfr_exp(exact, exact, MPFR_RNDN);
      ASSERT_EQ(RoundedExp(signed_x), mpfr_get_d(exact, MPFR_RNDN)) << signed_x;
    }
  }
  EXPECT_EQ(RoundedExp(0), 1);
  EXPECT_EQ(RoundedExp(1e9), INFINITY);
  EXPECT_EQ(RoundedExp(-1e9), 0);
}

}  // namespace
}  // namespace attnbias::elementary_test
