// SPDX-License-Identifier: Apache-2.0
// Laws for Toeplitz tensors whose elements are vectors: the laws in engine_test.cc for tensors that
// have columns as an additional last axis, with and without a head axis.
#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/mpfr_oracle.h"
#include "tests/unit/support/engine_harness.h"

namespace attnbias::vectors_test {
namespace {

using ::testing::ElementsAre;

struct Vectors {
  v1::TensorSpec encoding;
  int64_t heads;  // 1 without a head axis
  int64_t dim;
};

v1::TensorSpec Learned(const std::vector<int64_t>& shape) {
  auto spec = Parse<v1::TensorSpec>("learned_relative {left: 3 right: 4}");
  *spec.mutable_learned_relative()->mutable_vectors() = RandomRef(shape, 5);
  return spec;
}

v1::TensorSpec Sinusoids(int dim) {
  v1::TensorSpec spec;
  spec.mutable_relative_sinusoidal()->set_dim(dim);
  return spec;
}

std::vector<Vectors> AllVectors() {
  return {{Parse<v1::TensorSpec>("relative_sinusoidal {dim: 6 left: 4 causal: true}"), 1, 6},
          {Sinusoids(10), 1, 10},
          {Parse<v1::TensorSpec>("relative_sinusoidal {dim: 2 symmetric: true}"), 1, 2},
          {Learned({8, 5}), 1, 5},
          {Learned({8, 1}), 1, 1},
          {Learned({3, 8, 7}), 3, 7}};
}

// Lengths on both sides of the threshold at which rows become slices.
const std::tuple<int64_t, int64_t, int64_t> kLengths[] = {
    {5, 9, 4}, {9, 5, -3}, {1, 7, 6}, {7, 1, 0}, {40, 300, 260}};

std::vector<double> Expand(const std::vector<double>& diagonals, const Vectors& vectors,
                           int64_t queries, int64_t keys) {
  std::vector<double> dense;
  for (int64_t h = 0; h < vectors.heads; ++h) {
    for (int64_t i = 0; i < queries; ++i) {
      for (int64_t j = 0; j < keys; ++j) {
        const int64_t at = (h * (queries + keys - 1) + j - i + queries - 1) * vectors.dim;
        dense.insert(dense.end(), diagonals.begin() + at, diagonals.begin() + at + vectors.dim);
      }
    }
  }
  return dense;
}

TEST(Vectors, DenseEqualsExpandedDiagonals) {
  EngineHarness engine;
  for (const Vectors& vectors : AllVectors()) {
    for (const auto& [queries, keys, offset] : kLengths) {
      for (const DataType type : kFloatTypes) {
        const v1::TensorSpec compact =
            WithOutput(OverPairs(vectors.encoding, queries, keys, offset), Typed(type));
        ASSERT_EQ(engine.Numbers(WithOutput(compact, kDense)),
                  Expand(engine.Numbers(compact), vectors, queries, keys));
      }
    }
  }
}

// Reads start and end in the middle of numbers, vectors and rows.
TEST(Vectors, DoNotDependOnReadRanges) {
  EngineHarness engine;
  // Room for the sinusoids' own data, but not for eight bands.
  EngineHarness tiny({.memory_budget_bytes = 1000000});
  std::mt19937 random(2);
  for (const Vectors& vectors : AllVectors()) {
    for (const std::string form : {"", kDense}) {
      const v1::TensorSpec spec =
          WithOutput(OverPairs(vectors.encoding, 40, 6000, 5960), Typed(DataType::kBF16) + form);
      const PlanPtr plan = engine.Plan(spec);
      const PayloadPtr payload = engine.Get(plan);
      const int64_t total = plan->total_bytes();
      const std::string whole = EngineHarness::Bytes(Read(*payload, 0, total));
      const PayloadPtr small = tiny.Get(tiny.Plan(spec));
      for (int n = 0; n < 40; ++n) {
        const auto offset = std::uniform_int_distribution<int64_t>(0, total - 1)(random);
        const auto size = std::uniform_int_distribution<int64_t>(
            1, std::min<int64_t>(total - offset, 20000))(random);
        ASSERT_EQ(EngineHarness::Bytes(Read(*payload, offset, size)), whole.substr(offset, size));
        ASSERT_EQ(EngineHarness::Bytes(Read(*small, offset, size)), whole.substr(offset, size));
      }
    }
  }
  EXPECT_LT(tiny.computed(), engine.computed());
}

TEST(Vectors, MayBeWiderThanAChunk) {
  EngineHarness engine;
  const auto spec = Parse<v1::TensorSpec>(
      "relative_sinusoidal {dim: 65536} pair {query_length: 3 key_length: 3} "
      "output {data_type: DATA_TYPE_F64 form: FORM_DENSE}");
  const PlanPtr plan = engine.Plan(spec);
  EXPECT_THAT(plan->parts()[0].shape, ElementsAre(3, 3, 65536));
  const std::string whole = engine.Whole(spec);
  constexpr int64_t kVector = int64_t{65536} * 8;
  EXPECT_EQ(whole.substr(0, kVector), whole.substr(4 * kVector, kVector));
  EXPECT_EQ(whole.substr(kVector, kVector), whole.substr(5 * kVector, kVector));
  const PayloadPtr payload = engine.Get(plan);
  std::string read;
  for (int64_t at = 0; at < plan->total_bytes(); at += 100003) {
    read += EngineHarness::Bytes(
        Read(*payload, at, std::min<int64_t>(100003, plan->total_bytes() - at)));
  }
  EXPECT_EQ(read, whole);
}

TEST(Vectors, RejectHeadSelectionIfShared) {
  EngineHarness engine;
  const auto first_head = [](const v1::TensorSpec& spec) {
    return With(OverPairs(spec, 3, 3), "pair {heads {end: 1}}");
  };
  EXPECT_THAT(engine.MakePlan(first_head(Sinusoids(2))),
              IsInvalid("pair.heads: got [0, 1), want none"));
  EXPECT_THAT(engine.MakePlan(first_head(Learned({2, 8, 3}))), IsOk());
}

// Sizes are products of four lengths.
TEST(Vectors, RejectSizesThatWouldOverflow) {
  constexpr int64_t kMost = int64_t{1} << 40;
  EXPECT_THAT(
      EngineHarness().MakePlan(With(OverPairs(WithOutput(Sinusoids(65536), kDense), kMost, kMost),
                                    "relative_sinusoidal {left: 1 right: 1}")),
      IsInvalidWith("want at most"));
}

}  // namespace
}  // namespace attnbias::vectors_test
