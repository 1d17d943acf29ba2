// SPDX-License-Identifier: Apache-2.0
// What the engine makes of relative biases: a dense matrix is its expanded
// diagonals, a window a slice of it, a list its positions one by one, and a
// masked element the fill.
#include <cmath>
#include <string>
#include <vector>

#include "core/encoding/spec/deberta.h"
#include "core/encoding/spec/dynamic_position_bias.h"
#include "core/encoding/spec/kerple.h"
#include "core/encoding/spec/relative_table.h"
#include "core/encoding/spec/sandwich.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/engine_harness.h"

namespace attnbias::scalar_bias_test {
namespace {

struct Case {
  const char* name;
  EncodingSpec encoding;
  // 0 without a head axis.
  int64_t heads;
};

DynamicPositionBiasSpec Network() {
  return {.num_heads = 3,
          .log_distance = true,
          .layers = {{.weight = RandomTable({8, 1}, 1)},
                     {.weight = RandomTable({3, 8}, 2)}}};
}

class ScalarBias : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kQueries = 40;
  static constexpr int64_t kKeys = 1300;
  static constexpr int64_t kOffset = 900;

  TensorSpec Spec(Form form) const {
    PairExtent pair;
    pair.query_length = kQueries;
    pair.key_length = kKeys;
    pair.query_offset = kOffset;
    return {GetParam().encoding, pair, {.form = form}};
  }
  int64_t Heads() const { return std::max<int64_t>(GetParam().heads, 1); }

  EngineHarness engine_;
};

TEST_P(ScalarBias, DenseIsTheExpandedDiagonals) {
  const std::vector<double> diagonals = engine_.Numbers(Spec(Form::kToeplitz));
  const std::vector<double> dense = engine_.Numbers(Spec(Form::kDense));
  constexpr int64_t kCount = kQueries + kKeys - 1;
  ASSERT_EQ(diagonals.size(), Heads() * kCount);
  ASSERT_EQ(dense.size(), Heads() * kQueries * kKeys);
  for (int64_t h = 0; h < Heads(); ++h) {
    for (int64_t i = 0; i < kQueries; ++i) {
      for (int64_t j = 0; j < kKeys; ++j) {
        ASSERT_EQ(dense[(h * kQueries + i) * kKeys + j],
                  diagonals[h * kCount + j - i + kQueries - 1]);
      }
    }
  }
}

TEST_P(ScalarBias, AWindowIsASlice) {
  const std::vector<double> dense = engine_.Numbers(Spec(Form::kDense));
  TensorSpec window = Spec(Form::kDense);
  auto& pair = std::get<PairExtent>(window.extent);
  pair.queries = {7, 9};
  pair.keys = {100, 1290};
  const Range heads = GetParam().heads == 0 ? Range{0, 1} : Range{1, 3};
  if (GetParam().heads != 0) pair.heads = heads;
  std::vector<double> slice;
  for (int64_t h = heads.begin; h < heads.end; ++h) {
    for (int64_t i = 7; i < 9; ++i) {
      const auto row = dense.begin() + (h * kQueries + i) * kKeys;
      slice.insert(slice.end(), row + 100, row + 1290);
    }
  }
  EXPECT_EQ(engine_.Numbers(window), slice);
}

TEST_P(ScalarBias, ReadsAreSlices) {
  engine_.ExpectSliceable(Spec(Form::kToeplitz));
  engine_.ExpectSliceable(Spec(Form::kDense));
}

TEST_P(ScalarBias, ListsAreTheirPositionsOneByOne) {
  const std::vector<int64_t> queries = {3, -2, 1000000000, 0};
  const std::vector<int64_t> keys = {7, 0, 8, 9, -5, 999999990};
  const auto ask = [&](std::vector<int64_t> some_queries,
                       std::vector<int64_t> some_keys) {
    PairExtent pair;
    pair.query_positions = std::move(some_queries);
    pair.key_positions = std::move(some_keys);
    return engine_.Numbers({GetParam().encoding, pair, {.form = Form::kDense}});
  };
  const std::vector<double> all = ask(queries, keys);
  for (size_t i = 0; i < queries.size(); ++i) {
    for (size_t j = 0; j < keys.size(); ++j) {
      const std::vector<double> one = ask({queries[i]}, {keys[j]});
      for (int64_t h = 0; h < Heads(); ++h) {
        ASSERT_EQ(all[(h * queries.size() + i) * keys.size() + j], one[h]);
      }
    }
  }
}

TEST_P(ScalarBias, MasksHideKeysToTheRight) {
  TensorSpec masked = Spec(Form::kDense);
  masked.output.mask = Mask{.causal = true, .window_left = 20};
  if (GetParam().heads == 0) {
    EXPECT_EQ(engine_.MakePlan(masked).status().code(),
              absl::StatusCode::kInvalidArgument);
    return;
  }
  const std::vector<double> dense = engine_.Numbers(Spec(Form::kDense));
  const std::vector<double> got = engine_.Numbers(masked);
  for (size_t at = 0; at < got.size(); ++at) {
    const auto j = static_cast<int64_t>(at % kKeys);
    const auto i = static_cast<int64_t>(at / kKeys % kQueries) + kOffset;
    ASSERT_EQ(got[at], j > i || j < i - 20 ? -INFINITY : dense[at]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Encodings, ScalarBias,
    ::testing::Values(Case{"KerpleLog",
                           KerpleSpec{.kernel = KerpleKernel::kLog,
                                      .p = {0.5},
                                      .a = {1, 2, 3},
                                      .num_heads = 3},
                           3},
                      Case{"KerplePower",
                           KerpleSpec{.kernel = KerpleKernel::kPower,
                                      .p = {0.5, 1, 1.5},
                                      .a = {1},
                                      .num_heads = 3},
                           3},
                      Case{"Sandwich", SandwichSpec{.num_heads = 3, .dim = 6},
                           3},
                      Case{"LearnedRelative",
                           LearnedRelativeSpec{.table = RandomTable({31, 3}, 3),
                                               .num_heads = 3,
                                               .left = 20,
                                               .right = 10},
                           3},
                      Case{"DynamicPositionBias", Network(), 3},
                      Case{"Deberta", DebertaSpec(), 0}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace attnbias::scalar_bias_test
