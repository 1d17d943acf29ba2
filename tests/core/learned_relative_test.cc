// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/mpfr_oracle.h"
#include "tests/testing/engine_harness.h"
#include "tests/testing/filled.h"

namespace attnbias::learned_relative_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// table[r, h] = 10 r + h
v1::TableRef Counting(int64_t rows, int64_t heads) {
  std::vector<double> values;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < heads; ++h) {
      values.push_back(static_cast<double>(10 * r + h));
    }
  }
  return Ref(TableOf({rows, heads}, values));
}

v1::LearnedRelative Spec(int64_t left, int64_t right, int64_t heads = 2) {
  v1::LearnedRelative spec;
  *spec.mutable_table() = Counting(left + right + 1, heads);
  spec.set_left(left);
  spec.set_right(right);
  return spec;
}

std::vector<double> Head(const FilledNumbers& filled, int64_t head) {
  const auto begin = filled.numbers.begin() + head * filled.span.size();
  return {begin, begin + filled.span.size()};
}

TEST(LearnedRelative, ClipsToItsReach) {
  const FilledNumbers got = Filled(Spec(3, 1), {-5, 4}, DataType::kF32);
  EXPECT_THAT(Head(got, 0), ElementsAre(0, 0, 0, 10, 20, 30, 40, 40, 40));
  EXPECT_THAT(Head(got, 1), ElementsAre(1, 1, 1, 11, 21, 31, 41, 41, 41));
}

TEST(LearnedRelative, SymmetricDropsTheSign) {
  auto spec = Parse<v1::LearnedRelative>("right: 2 symmetric: true");
  *spec.mutable_table() = Counting(3, 2);
  const FilledNumbers got = Filled(spec, {-4, 4}, DataType::kF32);
  EXPECT_THAT(Head(got, 1), ElementsAre(21, 21, 21, 11, 1, 11, 21, 21));
}

TEST(LearnedRelative, BucketsAreTheRows) {
  const auto rows = [](const std::string& spec, Range span) {
    return Filled(Parse<v1::LearnedRelative>(spec), span, DataType::kI32,
                  kBuckets)
        .numbers;
  };
  EXPECT_THAT(rows("left: 3 right: 1", {-5, 4}),
              ElementsAre(0, 0, 0, 1, 2, 3, 4, 4, 4));
  EXPECT_THAT(rows("right: 2 symmetric: true", {-4, 4}),
              ElementsAre(2, 2, 2, 1, 0, 1, 2, 2));
  constexpr int64_t kMost = (int64_t{1} << 30) - 1;
  EXPECT_THAT(
      rows("left: 1073741823 right: 1073741823", {kMost - 1, kMost + 2}),
      ElementsAre(2 * kMost - 1, 2 * kMost, 2 * kMost));
}

TEST(LearnedRelative, OneColumnServesAllHeads) {
  v1::LearnedRelative spec = Spec(2, 2, 1);
  EXPECT_EQ(MakeWith(spec)->lanes, 1);
  spec.set_num_heads(3);
  const FilledNumbers got = Filled(spec, {-2, 3}, DataType::kF32);
  for (int64_t head = 0; head < 3; ++head) {
    EXPECT_THAT(Head(got, head), ElementsAre(0, 10, 20, 30, 40));
  }
}

TEST(LearnedRelative, IsRoundedOnceWhenScaled) {
  v1::LearnedRelative spec = Spec(4, 4);
  const Table table = RandomTable({9, 3}, 1);
  *spec.mutable_table() = Ref(table);
  Number value;
  for (const DataType type : kFloatTypes) {
    const FilledNumbers got = Filled(spec, {-6, 7}, type, Scaled(0.3));
    for (int64_t head = 0; head < 3; ++head) {
      for (int64_t at = -6; at < 7; ++at) {
        const int64_t row = std::clamp<int64_t>(at, -4, 4) + 4;
        mpfr_set_d(value, table.At(row, head), MPFR_RNDN);
        mpfr_mul_d(value, value, 0.3, MPFR_RNDN);
        ASSERT_TRUE(Same(got.At(head, at), RoundedBy(value, type)));
      }
    }
  }
}

TEST(LearnedRelative, RefusesWhatLiesBeyond) {
  v1::LearnedRelative refusing = Spec(3, 1);
  refusing.set_beyond(v1::BEYOND_REACH_REFUSE);
  const v1::TensorSpec spec = SpecOf(refusing);
  EngineHarness engine;
  EXPECT_THAT(engine.Numbers(OverPairs(spec, 4, 2)),
              ElementsAre(0, 10, 20, 30, 40, 1, 11, 21, 31, 41));
  for (const auto& wide : {OverPairs(spec, 5, 2), OverPairs(spec, 4, 3)}) {
    EXPECT_THAT(engine.MakePlan(wide),
                StatusIs(absl::StatusCode::kOutOfRange,
                         HasSubstr("want them in [-3, 2), which is all that "
                                   "learned_relative has")));
  }
  // A window within reach is served, though the whole is not within it.
  EXPECT_THAT(
      engine.Numbers(With(OverPairs(spec, 9, 9),
                          "pair {queries {begin: 3 end: 4} keys {end: 5}}")),
      ElementsAre(0, 10, 20, 30, 40, 1, 11, 21, 31, 41));
}

TEST(LearnedRelative, IdentityOfIndicesHasNothingOfTheTable) {
  v1::LearnedRelative other = Spec(3, 1);
  *other.mutable_table() = RandomRef({5, 2}, 1);
  EXPECT_NE(IdentityOf(Spec(3, 1)), IdentityOf(other));
  EXPECT_EQ(IdentityOf(Spec(3, 1), kBuckets), IdentityOf(other, kBuckets));
}

TEST(LearnedRelative, RefusesTablesOfAnotherShape) {
  v1::LearnedRelative spec = Spec(1, 1);
  *spec.mutable_table() = Counting(4, 2);
  EXPECT_THAT(RefusalOf(spec),
              IsInvalid("learned_relative.table: got shape [4, 2], want [3 "
                        "relative positions, 2 heads (num_heads)]"));
  spec = Spec(1, 1);
  spec.set_num_heads(3);
  EXPECT_THAT(RefusalOf(spec),
              IsInvalid("learned_relative.table: got shape [3, 2], want [3"));
  spec.clear_table();
  EXPECT_THAT(
      RefusalOf(spec),
      IsInvalid("learned_relative.table: not set, want a table of [3 relative "
                "positions, 3 heads or 1], or values BUCKETS"));
}

}  // namespace
}  // namespace attnbias::learned_relative_test
