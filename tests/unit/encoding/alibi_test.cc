// SPDX-License-Identifier: Apache-2.0
// Compares ALiBi with MPFR's powers of two, rounded once.
#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "core/encoding/bias/references.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/expect_rounded.h"

namespace attnbias::alibi_test {
namespace {

v1::Alibi Alibi(int num_heads, v1::AlibiVariant variant = v1::ALIBI_VARIANT_SYMMETRIC) {
  v1::Alibi alibi;
  alibi.set_num_heads(num_heads);
  alibi.set_variant(variant);
  return alibi;
}

// Press et al.: the slopes for a power of two, then every other slope for the next power.
void SetSlope(int64_t num_heads, int64_t head, double bias_max, mpfr_ptr slope) {
  int64_t power = 1;
  while (2 * power <= num_heads) power *= 2;
  const int64_t heads = head < power ? power : 2 * power;
  const int64_t index = head < power ? head + 1 : 2 * (head - power) + 1;
  mpfr_set_d(slope, -bias_max, MPFR_RNDN);
  mpfr_mul_si(slope, slope, index, MPFR_RNDN);
  mpfr_div_si(slope, slope, heads, MPFR_RNDN);
  mpfr_exp2(slope, slope, MPFR_RNDN);
}

void ExpectRounded(const v1::Alibi& alibi, Range span, double scale = 1) {
  const v1::Alibi spec = Completed(alibi);
  ExpectLanesRounded(spec, span, scale, [&](int64_t head, int64_t at, mpfr_ptr exact) {
    SetSlope(spec.num_heads(), head, spec.alibi_bias_max(), exact);
    if (spec.slopes_size() > 0) {
      mpfr_set_d(exact, spec.slopes(static_cast<int>(head)), MPFR_RNDN);
    }
    mpfr_mul_si(exact, exact,
                spec.variant() == v1::ALIBI_VARIANT_SYMMETRIC ? -std::abs(at)
                : spec.variant() == v1::ALIBI_VARIANT_CAUSAL  ? -std::max<int64_t>(-at, 0)
                                                              : at,
                MPFR_RNDN);
  });
}

TEST(AlibiSlopes, AreRoundedCorrectlyForUpTo128Heads) {
  for (int heads = 1; heads <= 128; ++heads) {
    ExpectRounded(Alibi(heads, v1::ALIBI_VARIANT_KEY_FROM_START), {1, 2});
  }
}

std::vector<double> Slopes(int num_heads) {
  return Filled(Alibi(num_heads, v1::ALIBI_VARIANT_KEY_FROM_START), {1, 2}, DataType::kF64).numbers;
}

TEST(AlibiSlopes, MatchThePaper) {
  EXPECT_THAT(Slopes(8),
              ::testing::ElementsAre(.5, .25, .125, .0625, .03125, .015625, .0078125, .00390625));
  const std::vector<double> slopes = Slopes(12);
  const double last[] = {.707106781187, .353553390593, .176776695297, .0883883476483};
  EXPECT_EQ(slopes[0], .5);
  EXPECT_EQ(slopes[7], .00390625);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(slopes[8 + i], last[i], 1e-12);
}

TEST(AlibiRounding, IsCorrectForEveryVariant) {
  for (int number = 1; number < v1::AlibiVariant_ARRAYSIZE; ++number) {
    const auto variant = static_cast<v1::AlibiVariant>(number);
    ExpectRounded(Alibi(12, variant), {-600, 601});
    ExpectRounded(Alibi(71, variant), {-70000, -69990});
    ExpectRounded(Alibi(3, variant), {(int64_t{1} << 40) - 3, int64_t{1} << 40});
  }
}

// Slopes 2^-k lie exactly between two BF16 or F16 values.
TEST(AlibiRounding, DecidesTies) { ExpectRounded(Alibi(8), {-5000, 10}); }

TEST(AlibiRounding, IsCorrectWhenScaled) {
  const auto given =
      Parse<v1::Alibi>("slopes: [0.1, -1e300, 5e-324] variant: ALIBI_VARIANT_KEY_FROM_START");
  for (const double scale : {0.125, 0.08838834764831845, -3.7, 1e-300, 1e305}) {
    ExpectRounded(Alibi(12), {-300, 30}, scale);
    ExpectRounded(given, {-300, 30}, scale);
  }
}

TEST(AlibiRounding, IsCorrectForExtremeSlopes) {
  for (const auto& [heads, bias_max] : {std::pair(3, 1000.3), std::pair(4, 1024.0),
                                        std::pair(2, 5e-324), std::pair(6, std::nextafter(8, 9))}) {
    v1::Alibi spec = Alibi(heads);
    spec.set_alibi_bias_max(bias_max);
    ExpectRounded(spec, {-40, 40});
  }
}

TEST(AlibiRounding, IsCorrectForGivenSlopes) {
  std::mt19937_64 random(7);
  v1::Alibi spec = Alibi(40, v1::ALIBI_VARIANT_KEY_FROM_END);
  for (int i = 0; i < 40; ++i) {
    spec.add_slopes(std::ldexp(static_cast<double>(random() >> 11), -53 - i));
  }
  spec.set_slopes(5, 0);
  spec.set_slopes(6, -0.0);
  ExpectRounded(spec, {-500, 1});
  ExpectRounded(spec, {-500, 1}, 1 / std::sqrt(3));
}

TEST(ReferenceAlibi, AgreesWithTheEvaluator) {
  const v1::Alibi spec = Completed(Alibi(13));
  for (const DataType type : kFloatTypes) {
    const FilledNumbers filled = Filled(spec, {-50, 50}, type, Scaled(0.3));
    for (int64_t head = 0; head < 13; ++head) {
      for (int64_t at = -50; at < 50; ++at) {
        std::byte out[8];
        ReferenceAlibi(spec, head, at, {type, 0.3}, out);
        ASSERT_TRUE(Same(ElementAt(type, out), filled.At(head, at)));
      }
    }
  }
}

// The variants differ by a constant per row, which softmax removes.
TEST(AlibiVariants, DifferByAConstantPerRow) {
  constexpr int64_t kLength = 64;
  const auto filled = [](v1::AlibiVariant variant, Range span) {
    return Filled(Alibi(8, variant), span, DataType::kF64);
  };
  const Range diagonals = {1 - kLength, kLength};
  const auto symmetric = filled(v1::ALIBI_VARIANT_SYMMETRIC, diagonals);
  const auto causal = filled(v1::ALIBI_VARIANT_CAUSAL, diagonals);
  const auto start = filled(v1::ALIBI_VARIANT_KEY_FROM_START, {0, kLength});
  const auto end = filled(v1::ALIBI_VARIANT_KEY_FROM_END, {1 - kLength, 1});
  for (int64_t head = 0; head < 8; ++head) {
    const double slope = start.At(head, 1);
    for (int64_t i = 0; i < kLength; ++i) {
      for (int64_t j = 0; j < kLength; ++j) {
        const double row = start.At(head, j);
        EXPECT_EQ(row - end.At(head, j + 1 - kLength), slope * (kLength - 1));
        EXPECT_EQ(causal.At(head, j - i), j <= i ? row - slope * i : 0);
        EXPECT_EQ(symmetric.At(head, j - i), -std::fabs(row - slope * i));
      }
    }
  }
}

// With distances anchored at the last key, BF16 distinguishes the keys near the query.
TEST(AlibiVariants, AnchorDeterminesDistinctBf16Values) {
  const auto distinct = [](v1::AlibiVariant variant, Range span) {
    const auto row = Filled(Alibi(8, variant), span, DataType::kBF16).numbers;
    return std::set<double>(row.begin(), row.begin() + span.size()).size();
  };
  EXPECT_EQ(distinct(v1::ALIBI_VARIANT_KEY_FROM_END, {-255, 1}), 256u);
  EXPECT_EQ(distinct(v1::ALIBI_VARIANT_KEY_FROM_START, {3840, 4096}), 17u);
}

TEST(Alibi, RejectsSlopeCountOtherThanHeads) {
  EXPECT_THAT(RefusalOf(Parse<v1::Alibi>("num_heads: 3 slopes: [1, 2]")),
              IsInvalid("alibi.slopes: got 2 numbers, want 3 (num_heads)"));
}

}  // namespace
}  // namespace attnbias::alibi_test
