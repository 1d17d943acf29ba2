// SPDX-License-Identifier: Apache-2.0
// Compares learned scalars and vectors with their tables, and their rows with literal index
// matrices from tensor2tensor and wav2vec2-BERT.
#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/expect_rounded.h"
#include "tests/unit/support/engine_harness.h"
#include "tests/unit/support/filled.h"

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

const std::string kIndices = absl::StrCat(kDense, kBuckets);

v1::LearnedRelative Reach(int64_t left, int64_t right) {
  v1::LearnedRelative spec;
  spec.set_left(left);
  spec.set_right(right);
  return spec;
}

v1::LearnedRelative Scalars(int64_t left, int64_t right, int64_t heads = 2) {
  v1::LearnedRelative spec = Reach(left, right);
  *spec.mutable_scalars() = Counting(left + right + 1, heads);
  return spec;
}

v1::LearnedRelative Vectors(int64_t left, int64_t right, const std::vector<int64_t>& table) {
  v1::LearnedRelative spec = Reach(left, right);
  *spec.mutable_vectors() = RandomRef(table, 3);
  return spec;
}

std::vector<double> Indices(const v1::LearnedRelative& spec, int64_t queries, int64_t keys,
                            int64_t offset = 0) {
  return EngineHarness().Numbers(OverPairs(WithOutput(spec, kIndices), queries, keys, offset));
}

std::vector<double> Head(const FilledNumbers& filled, int64_t head) {
  const auto begin = filled.numbers.begin() + head * filled.span.size();
  return {begin, begin + filled.span.size()};
}

// tensor2tensor's _generate_relative_positions_matrix, and the row that it returns with a cache.
TEST(LearnedRows, MatchTensor2Tensor) {
  EXPECT_THAT(Indices(Reach(2, 2), 3, 5, 2), ElementsAre(0, 1, 2, 3, 4,  //
                                                         0, 0, 1, 2, 3,  //
                                                         0, 0, 0, 1, 2));
  EXPECT_THAT(Indices(Reach(2, 2), 1, 5, 4), ElementsAre(0, 0, 0, 1, 2));
}

TEST(LearnedRows, MatchWav2Vec2BertWithUnequalReaches) {
  const std::vector<double> matrix = Indices(Reach(3, 1), 6, 6);
  EXPECT_THAT(std::vector<double>(matrix.begin(), matrix.begin() + 6),
              ElementsAre(3, 4, 4, 4, 4, 4));
  EXPECT_THAT(std::vector<double>(matrix.end() - 6, matrix.end()), ElementsAre(0, 0, 0, 1, 2, 3));
}

// transformers' relative_key indexes by i - j + max_position_embeddings - 1.
TEST(LearnedRows, FollowQueryMinusKeySign) {
  v1::LearnedRelative spec = Reach(2, 2);
  spec.set_sign(v1::RELATIVE_SIGN_QUERY_MINUS_KEY);
  EXPECT_THAT(Indices(spec, 3, 3), ElementsAre(2, 1, 0,  //
                                               3, 2, 1,  //
                                               4, 3, 2));
  spec.set_left(3);
  spec.set_right(1);
  EXPECT_THAT(EngineHarness().Numbers(OverPairs(WithOutput(spec, kBuckets), 5, 4)),
              ElementsAre(4, 4, 3, 2, 1, 0, 0, 0));
}

TEST(LearnedRows, CoverTheRangeOfI32) {
  constexpr int64_t kMost = (int64_t{1} << 30) - 1;
  EXPECT_THAT(Filled(Reach(kMost, kMost), {kMost - 1, kMost + 2}, DataType::kI32, kBuckets).numbers,
              ElementsAre(2 * kMost - 1, 2 * kMost, 2 * kMost));
}

TEST(LearnedRows, IgnoreDirectionIfSymmetric) {
  EXPECT_THAT(Filled(Parse<v1::LearnedRelative>("right: 2 symmetric: true"), {-4, 4},
                     DataType::kI32, kBuckets)
                  .numbers,
              ElementsAre(2, 2, 2, 1, 0, 1, 2, 2));
}

TEST(LearnedRows, IdentityDoesNotDependOnTable) {
  const std::string identity = IdentityOf(Reach(3, 1), kBuckets);
  EXPECT_EQ(IdentityOf(Scalars(3, 1), kBuckets), identity);
  EXPECT_EQ(IdentityOf(Vectors(3, 1, {5, 2}), kBuckets), identity);
  v1::LearnedRelative other = Scalars(3, 1);
  *other.mutable_scalars() = RandomRef({5, 2}, 3);
  ExpectAllDifferent(
      {IdentityOf(Scalars(3, 1)), IdentityOf(other), IdentityOf(Vectors(3, 1, {5, 2}))});
}

TEST(LearnedScalars, AreClippedToTheReach) {
  v1::LearnedRelative spec = Scalars(3, 1);
  FilledNumbers got = Filled(spec, {-5, 4}, DataType::kF32);
  EXPECT_THAT(Head(got, 0), ElementsAre(0, 0, 0, 10, 20, 30, 40, 40, 40));
  EXPECT_THAT(Head(got, 1), ElementsAre(1, 1, 1, 11, 21, 31, 41, 41, 41));
  spec.set_sign(v1::RELATIVE_SIGN_QUERY_MINUS_KEY);
  got = Filled(spec, {-5, 4}, DataType::kF32);
  EXPECT_THAT(Head(got, 1), ElementsAre(41, 41, 41, 31, 21, 11, 1, 1, 1));
}

TEST(LearnedScalars, OneColumnServesAllHeads) {
  v1::LearnedRelative spec = Scalars(2, 2, 1);
  EXPECT_EQ(MakeWith(spec)->lanes, 1);
  spec.set_num_heads(3);
  const FilledNumbers got = Filled(spec, {-2, 3}, DataType::kF32);
  for (int64_t head = 0; head < 3; ++head) {
    EXPECT_THAT(Head(got, head), ElementsAre(0, 10, 20, 30, 40));
  }
}

TEST(LearnedScalars, AreRoundedOnceWhenScaled) {
  v1::LearnedRelative spec = Reach(4, 4);
  const Table table = RandomTable({9, 3}, 1);
  *spec.mutable_scalars() = Ref(table);
  ExpectLanesRounded(spec, {-6, 7}, 0.3, [&](int64_t head, int64_t at, mpfr_ptr value) {
    const int64_t row = std::clamp<int64_t>(at, -4, 4) + 4;
    mpfr_set_d(value, table.At(row, head), MPFR_RNDN);
  });
}

// Returns the row in a five-row table that starts at relative position -3.
int64_t RowOf(const v1::LearnedRelative& spec, int64_t relative_position) {
  if (spec.symmetric()) return std::min<int64_t>(std::abs(relative_position), 4);
  const int64_t clipped = std::clamp<int64_t>(relative_position, -3, 1);
  return spec.sign() == v1::RELATIVE_SIGN_QUERY_MINUS_KEY ? -clipped + 1 : clipped + 3;
}

TEST(LearnedVectors, AreTableRowsRoundedOnce) {
  EngineHarness engine;
  for (const char* fields : {"left: 3 right: 1", "right: 4 symmetric: true",
                             "left: 3 right: 1 sign: RELATIVE_SIGN_QUERY_MINUS_KEY"}) {
    auto spec = Parse<v1::LearnedRelative>(fields);
    for (const bool per_head : {false, true}) {
      const Table table = per_head ? RandomTable({2, 5, 6}, 3) : RandomTable({5, 6}, 3);
      *spec.mutable_vectors() = Ref(table);
      for (const DataType type : kFloatTypes) {
        for (const double scale : {1.0, 0.1767766952966369}) {
          const std::vector<double> dense = engine.Numbers(
              OverPairs(WithOutput(spec, Typed(type) + Scaled(scale) + kDense), 4, 7, 1));
          ASSERT_EQ(dense.size(), (per_head ? 2 : 1) * 4 * 7 * 6);
          Number exact;
          for (size_t at = 0; at < dense.size(); ++at) {
            const int64_t column = at % 6;
            const int64_t j = at / 6 % 7;
            const int64_t i = at / 42 % 4 + 1;
            const int64_t head = at / 168;
            mpfr_set_d(exact, table.At((head * 5 + RowOf(spec, j - i)) * 6 + column), MPFR_RNDN);
            mpfr_mul_d(exact, exact, scale, MPFR_RNDN);
            ASSERT_TRUE(Same(dense[at], RoundedBy(exact, type))) << at;
          }
        }
      }
    }
  }
}

TEST(LearnedRelative, BeyondRefuseLimitsDistancesToTheTable) {
  EngineHarness engine;
  for (v1::LearnedRelative spec : {Scalars(3, 1), Vectors(3, 1, {5, 2})}) {
    const std::vector<double> clipped = engine.Numbers(OverPairs(SpecOf(spec), 4, 2));
    spec.set_beyond(v1::BEYOND_REACH_REFUSE);
    EXPECT_EQ(engine.Numbers(OverPairs(SpecOf(spec), 4, 2)), clipped);
    for (const v1::TensorSpec& wide : {OverPairs(SpecOf(spec), 5, 2), OverPairs(SpecOf(spec), 4, 3),
                                       // Each selected position alone is within reach, but not
                                       // every combination.
                                       AtPairs(SpecOf(spec), {0, 100}, {101, 1})}) {
      EXPECT_THAT(engine.MakePlan(wide),
                  StatusIs(absl::StatusCode::kOutOfRange,
                           HasSubstr("want positions in [-3, 2), the domain of "
                                     "learned_relative")));
    }
    // A window within reach is served although the whole is not.
    EXPECT_EQ(engine.Numbers(With(OverPairs(SpecOf(spec), 9, 9),
                                  "pair {queries {begin: 3 end: 4} keys {end: 5}}")),
              engine.Numbers(OverPairs(SpecOf(spec), 4, 2)));
  }
}

TEST(LearnedRelative, RejectsTablesOfAnotherShape) {
  v1::LearnedRelative spec = Scalars(1, 1);
  *spec.mutable_scalars() = Counting(4, 2);
  EXPECT_THAT(RefusalOf(spec), IsInvalid("learned_relative.scalars: got shape [4, 2], want [left "
                                         "+ right + 1, num_heads or 1] = [3, 2 or 1]"));
  spec = Scalars(1, 1);
  spec.set_num_heads(3);
  EXPECT_THAT(RefusalOf(spec), IsInvalid("learned_relative.scalars: got shape [3, 2], want [left "
                                         "+ right + 1, num_heads or 1] = [3, 3 or 1]"));
  EXPECT_THAT(RefusalOf(Vectors(2, 1, {5, 8})),
              IsInvalid("learned_relative.vectors: got shape [5, 8], want "
                        "[left + right + 1, dim] = [4, 8]"));
  EXPECT_THAT(RefusalOf(Vectors(2, 1, {4, 5, 8})),
              IsInvalid("learned_relative.vectors: got shape [4, 5, 8], want "
                        "[heads, left + right + 1, dim] = [4, 4, 8]"));
  EXPECT_THAT(RefusalOf(Vectors(2, 1, {4})),
              IsInvalid("learned_relative.vectors: got shape [4], want "
                        "[left + right + 1, dim] = [4, dim]"));
  EXPECT_THAT(RefusalOf(Vectors(0, 0, {65537, 1, 1})),
              IsInvalid("learned_relative.vectors: got 65537 heads, want at "
                        "most 65536"));
}

TEST(LearnedRelative, RequiresExactlyOneTable) {
  v1::LearnedRelative spec = Reach(2, 1);
  for (const int heads : {0, 3}) {
    spec.set_num_heads(heads);
    EXPECT_THAT(RefusalOf(spec), IsInvalid("learned_relative.vectors: not set, want exactly one of "
                                           "scalars, vectors, or values BUCKETS"));
  }
  spec = Vectors(2, 1, {4, 5});
  spec.set_num_heads(3);
  EXPECT_THAT(RefusalOf(spec), IsInvalid("learned_relative.num_heads: got 3, want none: "
                                         "vectors is set"));
}

TEST(LearnedRelative, RejectsMaskOfVectors) {
  EXPECT_THAT(EngineHarness().MakePlan(
                  OverPairs(WithOutput(Vectors(0, 0, {1, 1}), "mask {causal: true}"), 3, 3)),
              IsInvalid("output.mask: got a mask, want none: learned_relative"));
}

}  // namespace
}  // namespace attnbias::learned_relative_test
