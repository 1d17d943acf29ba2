// SPDX-License-Identifier: Apache-2.0
// What the engine makes of relative biases: a dense matrix is its expanded
// diagonals, a window a slice of it, a list its positions one by one, and a
// masked element the fill.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/engine_harness.h"

namespace attnbias::scalar_bias_test {
namespace {

struct Case {
  const char* name;
  v1::TensorSpec encoding;
  // 0 without a head axis.
  int64_t heads;
};

v1::LearnedRelative LearnedRelative() {
  auto spec = Parse<v1::LearnedRelative>("left: 20 right: 10");
  *spec.mutable_scalars() = RandomRef({31, 3}, 3);
  return spec;
}

v1::MlpBias Network() {
  auto spec = Parse<v1::MlpBias>(
      "activation: ACTIVATION_SILU layers {} layers {} "
      "coordinates: COORDINATES_SIGNED_LOG");
  *spec.mutable_layers(0)->mutable_weight() = RandomRef({8, 1}, 1);
  *spec.mutable_layers(1)->mutable_weight() = RandomRef({3, 8}, 2);
  return spec;
}

class ScalarBias : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kQueries = 40;
  static constexpr int64_t kKeys = 1300;
  static constexpr int64_t kOffset = 900;

  v1::TensorSpec Diagonals() const {
    return OverPairs(GetParam().encoding, kQueries, kKeys, kOffset);
  }
  v1::TensorSpec Dense() const { return WithOutput(Diagonals(), kDense); }
  int64_t Heads() const { return std::max<int64_t>(GetParam().heads, 1); }

  EngineHarness engine_;
};

TEST_P(ScalarBias, DenseIsTheExpandedDiagonals) {
  const std::vector<double> diagonals = engine_.Numbers(Diagonals());
  const std::vector<double> dense = engine_.Numbers(Dense());
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
  const std::vector<double> dense = engine_.Numbers(Dense());
  v1::TensorSpec window = With(
      Dense(), "pair {queries {begin: 7 end: 9} keys {begin: 100 end: 1290}}");
  const Range heads = GetParam().heads == 0 ? Range{0, 1} : Range{1, 3};
  if (GetParam().heads != 0) {
    *window.mutable_pair()->mutable_heads() = RangeOf(1, 3);
  }
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
  engine_.ExpectSliceable(Diagonals());
  engine_.ExpectSliceable(Dense());
}

TEST_P(ScalarBias, ListsAreTheirPositionsOneByOne) {
  const std::vector<int64_t> queries = {3, -2, 1000000000, 0};
  const std::vector<int64_t> keys = {7, 0, 8, 9, -5, 999999990};
  const auto ask = [&](const std::vector<int64_t>& some_queries,
                       const std::vector<int64_t>& some_keys) {
    return engine_.Numbers(
        AtPairs(GetParam().encoding, some_queries, some_keys));
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
  const v1::TensorSpec masked =
      WithOutput(Dense(), "mask {causal: true window_left: 20}");
  if (GetParam().heads == 0) {
    EXPECT_THAT(engine_.MakePlan(masked), IsInvalid("output.mask: "));
    return;
  }
  const std::vector<double> dense = engine_.Numbers(Dense());
  const std::vector<double> got = engine_.Numbers(masked);
  for (size_t at = 0; at < got.size(); ++at) {
    const auto j = static_cast<int64_t>(at % kKeys);
    const auto i = static_cast<int64_t>(at / kKeys % kQueries) + kOffset;
    ASSERT_EQ(got[at], j > i || j < i - 20 ? -INFINITY : dense[at]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Encodings, ScalarBias,
    ::testing::Values(
        Case{"KerpleLog",
             Parse<v1::TensorSpec>(
                 "kerple {kernel: KERPLE_KERNEL_LOG p: 0.5 a: [1, 2, 3]}"),
             3},
        Case{"KerplePower",
             Parse<v1::TensorSpec>(
                 "kerple {kernel: KERPLE_KERNEL_POWER p: [0.5, 1, 1.5] a: 1}"),
             3},
        Case{"Sandwich",
             Parse<v1::TensorSpec>("sandwich {num_heads: 3 dim: 6}"), 3},
        Case{"LearnedRelative", SpecOf(LearnedRelative()), 3},
        Case{"MlpBias", SpecOf(Network()), 3},
        Case{"Deberta", Parse<v1::TensorSpec>("deberta {}"), 0}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace attnbias::scalar_bias_test
