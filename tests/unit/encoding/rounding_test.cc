// SPDX-License-Identifier: Apache-2.0
#include "core/numerics/rounding.h"

#include <bit>
#include <cfloat>
#include <random>
#include <string>
#include <vector>

#include "core/numerics/real.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/mpfr_oracle.h"

namespace attnbias::rounding_test {
namespace {

// Doubles of all magnitudes, with many near midpoints and limits of narrower formats.
std::vector<double> Doubles(int count) {
  std::mt19937_64 random(1);
  std::vector<double> doubles = {
      0.0,     -0.0,           1.0,        65504.0,    65519.9,  65520.0,    -65520.0, 0x1p-24,
      0x1p-25, -0x1p-25,       0x1.8p-25,  0x1p-149,   0x1p-150, 0x1.8p-150, DBL_MAX,  DBL_TRUE_MIN,
      FLT_MAX, 0x1.ffffffp127, 0x1.fep127, 0x1.ffp127, 0x1p-133, 0x1p-134};
  for (int i = 0; i < count; ++i) {
    const int exponent = static_cast<int>(random() % 500) - 300;
    uint64_t bits =
        std::bit_cast<uint64_t>(std::ldexp(1.0, exponent)) | (random() >> 12) | random() << 63;
    // A tail of equal bits yields ties and their neighbors.
    const int tail = static_cast<int>(random() % 53);
    bits = bits >> tail << tail;
    if (random() % 2 != 0) bits += uint64_t{1} << tail >> 1;
    bits += random() % 3 - 1;
    doubles.push_back(std::bit_cast<double>(bits));
  }
  return doubles;
}

double Rounded(double value, DataType type) {
  std::byte out[8];
  RoundDouble(value, type, out);
  return ElementAt(type, out);
}

TEST(RoundDouble, AgreesWithMpfr) {
  Number exact;
  for (const DataType type : kFloatTypes) {
    for (const double value : Doubles(200000)) {
      mpfr_set_d(exact, value, MPFR_RNDN);
      ASSERT_TRUE(Same(Rounded(value, type), RoundedBy(exact, type)))
          << NameOf(type) << " of " << value;
    }
  }
}

TEST(RoundDouble, KeepsInfinitiesAndNan) {
  for (const DataType type : kFloatTypes) {
    EXPECT_EQ(Rounded(INFINITY, type), INFINITY);
    EXPECT_EQ(Rounded(-INFINITY, type), -INFINITY);
    EXPECT_TRUE(std::isnan(Rounded(NAN, type)));
  }
}

TEST(RoundProduct, AgreesWithMpfr) {
  Number exact;
  const std::vector<double> doubles = Doubles(100000);
  for (const DataType type : kFloatTypes) {
    for (size_t i = 1; i < doubles.size(); ++i) {
      const double a = doubles[i];
      const double b = doubles[i - 1];
      mpfr_set_d(exact, a, MPFR_RNDN);
      mpfr_mul_d(exact, exact, b, MPFR_RNDN);
      std::byte out[8];
      RoundProduct(a, b, type, out);
      ASSERT_TRUE(Same(ElementAt(type, out), RoundedBy(exact, type)))
          << NameOf(type) << " of " << a << " * " << b;
    }
  }
}

// Products on and next to the midpoint of two results.
TEST(RoundProduct, DecidesTies) {
  Number exact;
  for (const DataType type : kFloatTypes) {
    for (int64_t a = 1; a < 70000; a += 2) {
      const double factor = static_cast<double>(a) * (1 + 0x1p-52);
      for (const double x : {static_cast<double>(a), factor}) {
        mpfr_set_d(exact, x, MPFR_RNDN);
        mpfr_mul_d(exact, exact, 0x1.0000001p-20, MPFR_RNDN);
        std::byte out[8];
        RoundProduct(x, 0x1.0000001p-20, type, out);
        ASSERT_TRUE(Same(ElementAt(type, out), RoundedBy(exact, type)))
            << NameOf(type) << " of " << x;
      }
    }
  }
}

TEST(RoundSum, UsesBitsBelowTheLastPlace) {
  std::byte out[8];
  // 1 + 2^-9 + 2^-100 lies above the midpoint of two BF16 values, 1 + 2^-8 - 2^-100 ...
  RoundSum({1 + 0x1p-8, 0x1p-100}, DataType::kBF16, out);
  EXPECT_EQ(ElementAt(DataType::kBF16, out), 1 + 0x1p-7);
  RoundSum({1 + 0x1p-8, 0}, DataType::kBF16, out);
  EXPECT_EQ(ElementAt(DataType::kBF16, out), 1);
  RoundSum({1 + 0x3p-8, -0x1p-100}, DataType::kBF16, out);
  EXPECT_EQ(ElementAt(DataType::kBF16, out), 1 + 0x1p-7);
  RoundSum({1 + 0x3p-8, 0}, DataType::kBF16, out);
  EXPECT_EQ(ElementAt(DataType::kBF16, out), 1 + 0x2p-7);
}

// Both ends of the interval round to the result whenever TryRound returns one.
TEST(TryRound, SucceedsOnlyIfBothEndsRoundEqually) {
  std::mt19937_64 random(2);
  Number end;
  int64_t decided = 0;
  int64_t undecided = 0;
  for (const double hi : Doubles(100000)) {
    if (!(std::fabs(hi) > 0x1p-800 && std::fabs(hi) < 0x1p800)) continue;
    const double lo = hi * 0x1p-54 * (static_cast<double>(random() % 3) - 1);
    const double bound = std::ldexp(std::fabs(hi), -static_cast<int>(random() % 100) - 5);
    for (const DataType type : kFloatTypes) {
      std::byte out[8];
      if (!TryRound({hi, lo}, bound, type, out)) {
        ++undecided;
        continue;
      }
      ++decided;
      for (const double sign : {-1.0, 1.0}) {
        mpfr_set_d(end, hi, MPFR_RNDN);
        mpfr_add_d(end, end, lo, MPFR_RNDN);
        mpfr_add_d(end, end, sign * bound, MPFR_RNDN);
        ASSERT_TRUE(Same(ElementAt(type, out), RoundedBy(end, type)))
            << NameOf(type) << " of " << hi << " + " << lo << " +- " << bound;
      }
    }
  }
  EXPECT_GT(decided, 100000);
  EXPECT_GT(undecided, 10000);
}

TEST(TryRound, IsExactWithoutABound) {
  std::byte out[8];
  ASSERT_TRUE(TryRound({1 + 0x1p-8, 0}, 0, DataType::kBF16, out));
  EXPECT_EQ(ElementAt(DataType::kBF16, out), 1);
  EXPECT_FALSE(TryRound({1 + 0x1p-8, 0}, 0x1p-90, DataType::kBF16, out));
}

// 1 + lo + bound lies above the midpoint of two doubles by less than the sum lo + bound can
// represent.
TEST(TryRound, IntervalEndIsNotRoundedAway) {
  const DoubleDouble value = {1, 0x1p-53 - 0x1p-106};
  const double bound = 0x1p-106 + 0x1p-158;
  std::byte out[8];
  EXPECT_FALSE(TryRound(value, bound, DataType::kF64, out));
  double rounded = 0;
  EXPECT_FALSE(TryRoundToDouble(value, bound, &rounded));
  EXPECT_EQ(rounded, 0);
  EXPECT_TRUE(TryRoundToDouble({1, 0x1p-54}, 0x1p-107, &rounded));
  EXPECT_EQ(rounded, 1);
}

TEST(TryRound, RealsRoundBothEnds) {
  Real value(300);
  Real bound(300);
  mpfr_set_d(value.get(), 1 + 0x1p-8, MPFR_RNDN);
  mpfr_add_d(value.get(), value.get(), 0x1p-200, MPFR_RNDN);
  mpfr_set_d(bound.get(), 0x1p-199, MPFR_RNDN);
  std::byte out[8];
  EXPECT_FALSE(TryRound(value, bound, DataType::kBF16, out));
  mpfr_set_d(bound.get(), 0x1p-201, MPFR_RNDN);
  ASSERT_TRUE(TryRound(value, bound, DataType::kBF16, out));
  EXPECT_EQ(ElementAt(DataType::kBF16, out), 1 + 0x1p-7);
}

TEST(RoundReal, AgreesWithMpfr) {
  Number exact;
  const std::vector<double> doubles = Doubles(100000);
  for (const DataType type : kFloatTypes) {
    for (size_t i = 1; i < doubles.size(); ++i) {
      Real value(300);
      mpfr_set_d(value.get(), doubles[i], MPFR_RNDN);
      // A part far below the last bit, so that values are close to ties but not equal to them.
      mpfr_add_d(value.get(), value.get(), doubles[i] * 0x1p-100, MPFR_RNDN);
      if (i % 3 == 0) mpfr_mul_d(value.get(), value.get(), 1e-310, MPFR_RNDN);
      mpfr_set(exact, value.get(), MPFR_RNDN);
      std::byte out[8];
      RoundReal(value, type, out);
      ASSERT_TRUE(Same(ElementAt(type, out), RoundedBy(exact, type)))
          << NameOf(type) << " of " << doubles[i];
    }
  }
}

}  // namespace
}  // namespace attnbias::rounding_test
