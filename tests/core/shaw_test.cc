// SPDX-License-Identifier: Apache-2.0
// Shaw's relative position representations against literal index matrices of
// tensor2tensor and wav2vec2-BERT, and their vectors against the table.
#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/mpfr_oracle.h"
#include "tests/testing/engine_harness.h"
#include "tests/testing/filled.h"

namespace attnbias::shaw_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kIndices = absl::StrCat(kDense, kBuckets);

v1::Shaw Spec(int64_t left, int64_t right,
              const std::vector<int64_t>& table = {}) {
  v1::Shaw spec;
  spec.set_left(left);
  spec.set_right(right);
  if (!table.empty()) *spec.mutable_table() = RandomRef(table, 3);
  return spec;
}

std::vector<double> Indices(const v1::Shaw& spec, int64_t queries, int64_t keys,
                            int64_t offset = 0) {
  return EngineHarness().Numbers(
      OverPairs(WithOutput(spec, kIndices), queries, keys, offset));
}

// tensor2tensor's _generate_relative_positions_matrix, and its row of a cache.
TEST(ShawIndices, AreTensor2Tensors) {
  EXPECT_THAT(Indices(Spec(2, 2), 3, 5, 2), ElementsAre(0, 1, 2, 3, 4,  //
                                                        0, 0, 1, 2, 3,  //
                                                        0, 0, 0, 1, 2));
  EXPECT_THAT(Indices(Spec(2, 2), 1, 5, 4), ElementsAre(0, 0, 0, 1, 2));
}

TEST(ShawIndices, AreWav2Vec2BertsWithUnequalReaches) {
  const std::vector<double> matrix = Indices(Spec(3, 1), 6, 6);
  EXPECT_THAT(std::vector<double>(matrix.begin(), matrix.begin() + 6),
              ElementsAre(3, 4, 4, 4, 4, 4));
  EXPECT_THAT(std::vector<double>(matrix.end() - 6, matrix.end()),
              ElementsAre(0, 0, 0, 1, 2, 3));
}

// transformers' relative_key counts i - j + max_position_embeddings - 1.
TEST(ShawIndices, CountTheOtherWayWhenSaidSo) {
  v1::Shaw spec = Spec(2, 2);
  spec.set_sign(v1::RELATIVE_SIGN_QUERY_MINUS_KEY);
  EXPECT_THAT(Indices(spec, 3, 3), ElementsAre(2, 1, 0,  //
                                               3, 2, 1,  //
                                               4, 3, 2));
  spec.set_left(3);
  spec.set_right(1);
  EXPECT_THAT(
      EngineHarness().Numbers(OverPairs(WithOutput(spec, kBuckets), 5, 4)),
      ElementsAre(4, 4, 3, 2, 1, 0, 0, 0));
}

TEST(ShawIndices, ReachAsFarAsI32) {
  constexpr int64_t kMost = (int64_t{1} << 30) - 1;
  EXPECT_THAT(Indices(Spec(kMost, kMost), 1, 1, -(int64_t{1} << 40)),
              ElementsAre(2147483646));
}

TEST(ShawVectors, AreTheTablesRowsRoundedOnce) {
  EngineHarness engine;
  for (const bool per_head : {false, true}) {
    v1::Shaw spec = Spec(
        3, 1,
        per_head ? std::vector<int64_t>{2, 5, 6} : std::vector<int64_t>{5, 6});
    const Table table = TableAt(spec.table());
    for (const auto sign : {v1::RELATIVE_SIGN_KEY_MINUS_QUERY,
                            v1::RELATIVE_SIGN_QUERY_MINUS_KEY}) {
      spec.set_sign(sign);
      for (const DataType type : kFloatTypes) {
        for (const double scale : {1.0, 0.1767766952966369}) {
          const std::vector<double> dense = engine.Numbers(OverPairs(
              WithOutput(spec, Typed(type) + Scaled(scale) + kDense), 4, 7, 1));
          ASSERT_EQ(dense.size(), (per_head ? 2 : 1) * 4 * 7 * 6);
          Number exact;
          for (size_t at = 0; at < dense.size(); ++at) {
            const int64_t column = at % 6;
            const int64_t j = at / 6 % 7;
            const int64_t i = at / 42 % 4 + 1;
            const int64_t head = at / 168;
            const int64_t clipped = std::clamp<int64_t>(j - i, -3, 1);
            const int64_t index = sign == v1::RELATIVE_SIGN_QUERY_MINUS_KEY
                                      ? -clipped + 1
                                      : clipped + 3;
            mpfr_set_d(exact, table.At((head * 5 + index) * 6 + column),
                       MPFR_RNDN);
            mpfr_mul_d(exact, exact, scale, MPFR_RNDN);
            ASSERT_TRUE(Same(dense[at], RoundedBy(exact, type))) << at;
          }
        }
      }
    }
  }
}

TEST(ShawVectors, HaveTheirShapes) {
  EngineHarness engine;
  const auto shape = [&](const std::vector<int64_t>& table,
                         const std::string& output) {
    const PlanPtr plan =
        engine.Plan(OverPairs(WithOutput(Spec(1, 1, table), output), 4, 7));
    return std::vector<int64_t>(plan->parts()[0].shape.begin(),
                                plan->parts()[0].shape.end());
  };
  EXPECT_THAT(shape({3, 6}, ""), ElementsAre(10, 6));
  EXPECT_THAT(shape({3, 6}, kDense), ElementsAre(4, 7, 6));
  EXPECT_THAT(shape({2, 3, 6}, ""), ElementsAre(2, 10, 6));
  EXPECT_THAT(shape({2, 3, 6}, kDense), ElementsAre(2, 4, 7, 6));
  // A vector of one number is a vector.
  EXPECT_THAT(shape({3, 1}, ""), ElementsAre(10, 1));
  EXPECT_THAT(shape({1, 3, 1}, kDense), ElementsAre(1, 4, 7, 1));
  EXPECT_THAT(shape({2, 3, 6}, kBuckets), ElementsAre(10));
}

TEST(ShawVectors, EndWhereTheTableEndsWhenBeyondIsRefused) {
  EngineHarness engine;
  v1::Shaw spec = Spec(3, 1, {5, 2});
  const std::vector<double> clipped =
      engine.Numbers(OverPairs(SpecOf(spec), 4, 2));
  spec.set_beyond(v1::BEYOND_REACH_REFUSE);
  EXPECT_EQ(engine.Numbers(OverPairs(SpecOf(spec), 4, 2)), clipped);
  for (const v1::TensorSpec& wide :
       {OverPairs(SpecOf(spec), 5, 2), OverPairs(SpecOf(spec), 4, 3),
        // Positions picked one by one are inside only together.
        AtPairs(SpecOf(spec), {0, 100}, {101, 1})}) {
    EXPECT_THAT(
        engine.MakePlan(wide),
        StatusIs(
            absl::StatusCode::kOutOfRange,
            HasSubstr("want them in [-3, 2), which is all that shaw has")));
  }
}

TEST(Shaw, RefusesTablesOfAnotherShape) {
  EXPECT_THAT(RefusalOf(Spec(2, 1)),
              IsInvalid("shaw.table: not set, want a table of [4 relative "
                        "positions, "));
  EXPECT_THAT(RefusalOf(Spec(2, 1, {5, 8})),
              IsInvalid("shaw.table: got shape [5, 8], want [4 relative "
                        "positions, 8 columns]"));
  EXPECT_THAT(RefusalOf(Spec(2, 1, {4, 5, 8})),
              IsInvalid("shaw.table: got shape [4, 5, 8], want [4 heads, 4 "
                        "relative positions, 8 columns]"));
  EXPECT_THAT(RefusalOf(Spec(2, 1, {4})),
              IsInvalid("shaw.table: got shape [4], want [4 relative "));
  EXPECT_THAT(RefusalOf(Spec(0, 0, {65537, 1, 1})),
              IsInvalid("shaw.table: got 65537 heads, want at most 65536"));
}

TEST(Shaw, RefusesAMask) {
  EXPECT_THAT(EngineHarness().MakePlan(OverPairs(
                  WithOutput(Spec(0, 0, {1, 1}), "mask {causal: true}"), 3, 3)),
              IsInvalid("output.mask: got a mask, want none: shaw"));
}

}  // namespace
}  // namespace attnbias::shaw_test
