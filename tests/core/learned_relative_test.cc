// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <vector>

#include "core/encoding/spec/relative_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/mpfr_oracle.h"
#include "tests/testing/engine_harness.h"
#include "tests/testing/filled.h"

namespace attnbias::learned_relative_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// table[r, h] = 10 r + h
Table Counting(int64_t rows, int64_t heads) {
  std::vector<double> values;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < heads; ++h) {
      values.push_back(static_cast<double>(10 * r + h));
    }
  }
  return *Table::Create(
      DataType::kF64, {rows, heads},
      {reinterpret_cast<const char*>(values.data()), values.size() * 8},
      TableLayout::kBucketsHeads);
}

LearnedRelativeSpec Spec(int64_t left, int64_t right, int64_t heads = 2) {
  return {.table = Counting(left + right + 1, heads),
          .num_heads = heads,
          .left = left,
          .right = right};
}

LearnedRelativeSpec Symmetric(int64_t right) {
  return {.table = Counting(right + 1, 2),
          .num_heads = 2,
          .right = right,
          .symmetric = true};
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
  const FilledNumbers got = Filled(Symmetric(2), {-4, 4}, DataType::kF32);
  EXPECT_THAT(Head(got, 1), ElementsAre(21, 21, 21, 11, 1, 11, 21, 21));
}

TEST(LearnedRelative, BucketsAreTheRows) {
  LearnedRelativeSpec spec{.left = 3, .right = 1};
  const Output buckets = WithValues(Values::kBuckets);
  EXPECT_THAT(Filled(spec, {-5, 4}, DataType::kI32, buckets).numbers,
              ElementsAre(0, 0, 0, 1, 2, 3, 4, 4, 4));
  const LearnedRelativeSpec symmetric{.right = 2, .symmetric = true};
  EXPECT_THAT(Filled(symmetric, {-4, 4}, DataType::kI32, buckets).numbers,
              ElementsAre(2, 2, 2, 1, 0, 1, 2, 2));
  constexpr int64_t kMost = (int64_t{1} << 30) - 1;
  spec = {.left = kMost, .right = kMost};
  EXPECT_THAT(
      Filled(spec, {kMost - 1, kMost + 2}, DataType::kI32, buckets).numbers,
      ElementsAre(2 * kMost - 1, 2 * kMost, 2 * kMost));
}

TEST(LearnedRelative, OneColumnServesAllHeads) {
  LearnedRelativeSpec spec = Spec(2, 2, 1);
  spec.num_heads = 3;
  const FilledNumbers got = Filled(spec, {-2, 3}, DataType::kF32);
  for (int64_t head = 0; head < 3; ++head) {
    EXPECT_THAT(Head(got, head), ElementsAre(0, 10, 20, 30, 40));
  }
}

TEST(LearnedRelative, IsRoundedOnceWhenScaled) {
  LearnedRelativeSpec spec{
      .table = RandomTable({9, 3}, 1), .num_heads = 3, .left = 4, .right = 4};
  Number value;
  for (const DataType type : kFloatTypes) {
    const FilledNumbers got = Filled(spec, {-6, 7}, type, Scaled(0.3));
    for (int64_t head = 0; head < 3; ++head) {
      for (int64_t at = -6; at < 7; ++at) {
        const int64_t row = std::min<int64_t>(std::max<int64_t>(at, -4), 4) + 4;
        mpfr_set_d(value, spec.table->At(row, head), MPFR_RNDN);
        mpfr_mul_d(value, value, 0.3, MPFR_RNDN);
        ASSERT_TRUE(Same(got.At(head, at), RoundedBy(value, type)));
      }
    }
  }
}

TEST(LearnedRelative, RefusesWhatLiesBeyond) {
  LearnedRelativeSpec spec = Spec(3, 1);
  spec.beyond = BeyondReach::kRefuse;
  EngineHarness engine;
  EXPECT_THAT(engine.Numbers({spec, PairOf(4, 2), {}}),
              ElementsAre(0, 10, 20, 30, 40, 1, 11, 21, 31, 41));
  for (const PairExtent& pair : {PairOf(5, 2), PairOf(4, 3)}) {
    EXPECT_THAT(engine.MakePlan({spec, pair, {}}),
                StatusIs(absl::StatusCode::kOutOfRange,
                         HasSubstr("want them in [-3, 2), which is all that "
                                   "learned_relative has")));
  }
  // A window within reach is served, though the whole is not within it.
  PairExtent window = PairOf(9, 9);
  window.queries = {3, 4};
  window.keys = {0, 5};
  EXPECT_THAT(engine.Numbers({spec, window, {}}),
              ElementsAre(0, 10, 20, 30, 40, 1, 11, 21, 31, 41));
}

TEST(LearnedRelative, IdentityChangesWithEveryField) {
  const Output buckets = WithValues(Values::kBuckets);
  LearnedRelativeSpec other_table = Spec(3, 1);
  other_table.table = RandomTable({5, 2}, 1);
  LearnedRelativeSpec refusing = Spec(3, 1);
  refusing.beyond = BeyondReach::kRefuse;
  LearnedRelativeSpec one = Spec(3, 1, 1);
  LearnedRelativeSpec shared = one;
  shared.num_heads = 2;
  LearnedRelativeSpec wide = Symmetric(4);
  LearnedRelativeSpec left{
      .table = wide.table, .num_heads = 2, .left = 0, .right = 4};
  ExpectAllDifferent({IdentityOf(Spec(3, 1)), IdentityOf(Spec(2, 2)),
                      IdentityOf(other_table), IdentityOf(refusing),
                      IdentityOf(one), IdentityOf(shared), IdentityOf(wide),
                      IdentityOf(left), IdentityOf(Spec(3, 1), buckets),
                      IdentityOf(Spec(3, 1), Scaled(2))});
  // Indices have nothing of the table.
  EXPECT_EQ(IdentityOf(Spec(3, 1), buckets), IdentityOf(other_table, buckets));
}

struct BadSpec {
  const char* name;
  LearnedRelativeSpec spec;
  Output output;
  const char* message;
};

class BadLearnedRelative : public ::testing::TestWithParam<BadSpec> {};

TEST_P(BadLearnedRelative, IsRefusedByName) {
  EXPECT_THAT(MakeEncoding(GetParam().spec, GetParam().output),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadLearnedRelative,
    ::testing::Values(
        BadSpec{"NoRight",
                {.num_heads = 1, .left = 1},
                {},
                "learned_relative.right: not set, want"},
        BadSpec{"NoLeft",
                {.num_heads = 1, .right = 1},
                {},
                "learned_relative.left: not set, want"},
        BadSpec{"NegativeLeft",
                {.num_heads = 1, .left = -1, .right = 1},
                {},
                "learned_relative.left: got -1, want an integer in [0, "},
        BadSpec{"HugeRight",
                {.num_heads = 1, .left = 0, .right = int64_t{1} << 30},
                {},
                "learned_relative.right: got 1073741824, want"},
        BadSpec{"LeftOfSymmetric",
                {.num_heads = 1, .left = 1, .right = 1, .symmetric = true},
                {},
                "learned_relative.left: got 1, want none"},
        BadSpec{"NoTable",
                {.num_heads = 2, .left = 1, .right = 1},
                {},
                "learned_relative.table: not set, want a table of [3 relative "
                "positions, 2 heads or 1], or values BUCKETS"},
        BadSpec{
            "WrongRows",
            {.table = Counting(4, 2), .num_heads = 2, .left = 1, .right = 1},
            {},
            "learned_relative.table: got shape [4, 2], want [3 relative "
            "positions, 2 heads (num_heads)]"},
        BadSpec{
            "WrongHeads",
            {.table = Counting(3, 2), .num_heads = 3, .left = 1, .right = 1},
            {},
            "learned_relative.table: got shape [3, 2], want [3"},
        BadSpec{"NoHeads",
                {.left = 1, .right = 1},
                {},
                "learned_relative.num_heads: not set"},
        BadSpec{"Scale", Spec(1, 1), Scaled(INFINITY),
                "output.scale: got inf"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(LearnedRelative, RefusesScaledIndices) {
  Output output = WithValues(Values::kBuckets);
  output.scale = 2;
  EXPECT_THAT(MakeEncoding(Spec(1, 1), output),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("output.scale: got 2, want none")));
}

}  // namespace
}  // namespace attnbias::learned_relative_test
