// SPDX-License-Identifier: Apache-2.0
// Shaw's relative position representations against literal index matrices of
// tensor2tensor and wav2vec2-BERT, and their vectors against the table.
#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/encoding/spec/relative_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/mpfr_oracle.h"
#include "tests/testing/engine_harness.h"

namespace attnbias::shaw_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kQueryMinusKey = RelativeSign::kQueryMinusKey;
const Output kIndices = {.form = Form::kDense, .values = Values::kBuckets};

Table RandomTable(std::vector<int64_t> shape) {
  int64_t count = 1;
  for (const int64_t length : shape) count *= length;
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& value : values) value = normal(random);
  return *Table::Create(
      DataType::kF64, shape,
      {reinterpret_cast<const char*>(values.data()), values.size() * 8},
      TableLayout::kBucketsHeads);
}

ShawSpec Spec(int64_t left, int64_t right) {
  return {.left = left, .right = right};
}

// tensor2tensor's _generate_relative_positions_matrix, and its row of a cache.
TEST(ShawIndices, AreTensor2Tensors) {
  EngineHarness engine;
  EXPECT_THAT(engine.Numbers({Spec(2, 2), PairOf(3, 5, 2), kIndices}),
              ElementsAre(0, 1, 2, 3, 4,  //
                          0, 0, 1, 2, 3,  //
                          0, 0, 0, 1, 2));
  EXPECT_THAT(engine.Numbers({Spec(2, 2), PairOf(1, 5, 4), kIndices}),
              ElementsAre(0, 0, 0, 1, 2));
}

TEST(ShawIndices, AreWav2Vec2BertsWithUnequalReaches) {
  EngineHarness engine;
  const std::vector<double> matrix =
      engine.Numbers({Spec(3, 1), PairOf(6, 6, 0), kIndices});
  EXPECT_THAT(std::vector<double>(matrix.begin(), matrix.begin() + 6),
              ElementsAre(3, 4, 4, 4, 4, 4));
  EXPECT_THAT(std::vector<double>(matrix.end() - 6, matrix.end()),
              ElementsAre(0, 0, 0, 1, 2, 3));
}

// transformers' relative_key counts i - j + max_position_embeddings - 1.
TEST(ShawIndices, CountTheOtherWayWhenSaidSo) {
  EngineHarness engine;
  ShawSpec spec = Spec(2, 2);
  spec.sign = kQueryMinusKey;
  EXPECT_THAT(engine.Numbers({spec, PairOf(3, 3, 0), kIndices}),
              ElementsAre(2, 1, 0,  //
                          3, 2, 1,  //
                          4, 3, 2));
  spec.left = 3;
  spec.right = 1;
  EXPECT_THAT(
      engine.Numbers({spec, PairOf(5, 4, 0), {.values = Values::kBuckets}}),
      ElementsAre(4, 4, 3, 2, 1, 0, 0, 0));
}

TEST(ShawIndices, ReachAsFarAsI32) {
  EngineHarness engine;
  constexpr int64_t kMost = (int64_t{1} << 30) - 1;
  EXPECT_THAT(engine.Numbers({Spec(kMost, kMost),
                              PairOf(1, 1, -(int64_t{1} << 40)), kIndices}),
              ElementsAre(2147483646));
}

TEST(ShawVectors, AreTheTablesRowsRoundedOnce) {
  EngineHarness engine;
  for (const bool per_head : {false, true}) {
    ShawSpec spec = Spec(3, 1);
    spec.table = per_head ? RandomTable({2, 5, 6}) : RandomTable({5, 6});
    for (const RelativeSign sign :
         {RelativeSign::kKeyMinusQuery, kQueryMinusKey}) {
      spec.sign = sign;
      for (const DataType type : kFloatTypes) {
        for (const double scale : {1.0, 0.1767766952966369}) {
          const std::vector<double> dense = engine.Numbers(
              {spec,
               PairOf(4, 7, 1),
               {.data_type = type, .form = Form::kDense, .scale = scale}});
          ASSERT_EQ(dense.size(), (per_head ? 2 : 1) * 4 * 7 * 6);
          Number exact;
          for (size_t at = 0; at < dense.size(); ++at) {
            const int64_t column = at % 6;
            const int64_t j = at / 6 % 7;
            const int64_t i = at / 42 % 4 + 1;
            const int64_t head = at / 168;
            const int64_t clipped = std::clamp<int64_t>(j - i, -3, 1);
            const int64_t index =
                sign == kQueryMinusKey ? -clipped + 1 : clipped + 3;
            mpfr_set_d(exact, spec.table->At((head * 5 + index) * 6 + column),
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
  const auto shape = [&](std::vector<int64_t> table, Output output) {
    ShawSpec spec = Spec(1, 1);
    spec.table = RandomTable(std::move(table));
    const auto plan = engine.Plan({spec, PairOf(4, 7, 0), output});
    return std::vector<int64_t>(plan->parts()[0].shape.begin(),
                                plan->parts()[0].shape.end());
  };
  const Output dense = {.form = Form::kDense};
  EXPECT_THAT(shape({3, 6}, {}), ElementsAre(10, 6));
  EXPECT_THAT(shape({3, 6}, dense), ElementsAre(4, 7, 6));
  EXPECT_THAT(shape({2, 3, 6}, {}), ElementsAre(2, 10, 6));
  EXPECT_THAT(shape({2, 3, 6}, dense), ElementsAre(2, 4, 7, 6));
  // A vector of one number is a vector.
  EXPECT_THAT(shape({3, 1}, {}), ElementsAre(10, 1));
  EXPECT_THAT(shape({1, 3, 1}, dense), ElementsAre(1, 4, 7, 1));
  EXPECT_THAT(shape({2, 3, 6}, {.values = Values::kBuckets}), ElementsAre(10));
}

TEST(ShawVectors, EndWhereTheTableEndsWhenBeyondIsRefused) {
  EngineHarness engine;
  ShawSpec spec = Spec(3, 1);
  spec.table = RandomTable({5, 2});
  const std::vector<double> clipped =
      engine.Numbers({spec, PairOf(4, 2, 0), {}});
  spec.beyond = BeyondReach::kRefuse;
  EXPECT_EQ(engine.Numbers({spec, PairOf(4, 2, 0), {}}), clipped);
  for (const PairExtent& pair : {PairOf(5, 2, 0), PairOf(4, 3, 0)}) {
    EXPECT_THAT(
        engine.MakePlan({spec, pair, {}}),
        StatusIs(
            absl::StatusCode::kOutOfRange,
            HasSubstr("want them in [-3, 2), which is all that shaw has")));
  }
  // Positions picked one by one are inside only together.
  PairExtent lists;
  lists.query_positions = {0, 100};
  lists.key_positions = {101, 1};
  EXPECT_THAT(engine.MakePlan({spec, lists, {}}),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("shaw")));
}

struct BadSpec {
  const char* name;
  ShawSpec spec;
  Output output;
  const char* message;
};

class BadShaw : public ::testing::TestWithParam<BadSpec> {};

TEST_P(BadShaw, IsRefusedByName) {
  EXPECT_THAT(EngineHarness().MakePlan(
                  {GetParam().spec, PairOf(3, 3, 0), GetParam().output}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadShaw,
    ::testing::Values(
        BadSpec{"NoLeft", {}, {}, "shaw.left: not set, want an integer in"},
        BadSpec{"NoRight", {.left = 0}, {}, "shaw.right: not set"},
        BadSpec{"NegativeLeft", Spec(-1, 0), {}, "shaw.left: got -1, want"},
        BadSpec{
            "HugeRight",
            Spec(0, int64_t{1} << 30),
            {},
            "shaw.right: got 1073741824, want an integer in [0, 1073741823]"},
        BadSpec{"NoTable",
                Spec(2, 1),
                {},
                "shaw.table: not set, want a table of [4 relative positions, "},
        BadSpec{"WrongRows",
                {.table = RandomTable({5, 8}), .left = 2, .right = 1},
                {},
                "shaw.table: got shape [5, 8], want [4 relative positions, 8 "
                "columns]"},
        BadSpec{"WrongRowsOfHeads",
                {.table = RandomTable({4, 5, 8}), .left = 2, .right = 1},
                {},
                "shaw.table: got shape [4, 5, 8], want [4 heads, 4 relative "
                "positions, 8 columns]"},
        BadSpec{"OneAxis",
                {.table = RandomTable({4}), .left = 2, .right = 1},
                {},
                "shaw.table: got shape [4], want [4 relative positions, "},
        BadSpec{"TooManyHeads",
                {.table = RandomTable({65537, 1, 1}), .left = 0, .right = 0},
                {},
                "shaw.table: got 65537 heads, want at most 65536"},
        BadSpec{"Mask",
                {.table = RandomTable({1, 1}), .left = 0, .right = 0},
                {.mask = Mask{.causal = true}},
                "output.mask: got a mask, want none: shaw"},
        BadSpec{"ScaledIndices",
                Spec(1, 1),
                {.values = Values::kBuckets, .scale = 2},
                "output.scale: got 2, want none: indices are not scaled"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Shaw, IsNamedByEveryField) {
  EngineHarness engine;
  std::vector<TensorSpec> specs(6, {Spec(1, 1), PairOf(2, 2, 0), {}});
  const auto at = [&](int index) -> ShawSpec& {
    return *specs[index].encoding.As<ShawSpec>();
  };
  for (int i = 0; i < 5; ++i) at(i).table = RandomTable({3, 2});
  at(1).table = RandomTable({1, 3, 2});
  at(2).beyond = BeyondReach::kRefuse;
  at(3).sign = kQueryMinusKey;
  specs[4].output.scale = 2;
  specs[5].output.values = Values::kBuckets;
  specs.push_back({Spec(0, 2), PairOf(2, 2, 0), kIndices});
  specs.push_back({Spec(2, 0), PairOf(2, 2, 0), kIndices});
  std::set<std::string> names;
  for (const TensorSpec& spec : specs) {
    names.insert(engine.Plan(spec)->encoding_fingerprint());
  }
  EXPECT_EQ(names.size(), specs.size());
}

}  // namespace
}  // namespace attnbias::shaw_test
