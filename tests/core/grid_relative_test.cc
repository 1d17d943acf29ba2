// SPDX-License-Identifier: Apache-2.0
// Learned biases of grids: the published index matrices, gathers of random
// tables, and the laws of grids and borders through the engine.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/mpfr_oracle.h"
#include "tests/testing/engine_harness.h"
#include "tests/testing/filled.h"

namespace attnbias::grid_relative_test {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

constexpr int64_t kHeads = 3;

v1::GridRelative Window(int height, int width, const std::string& rest = "") {
  return Parse<v1::GridRelative>(
      absl::StrCat("window: [", height, ", ", width, "] ", rest));
}

v1::GridRelative Swin(int height, int width) {
  v1::GridRelative spec = Window(height, width);
  *spec.mutable_table() =
      RandomRef({(2 * height - 1) * (2 * width - 1), kHeads}, 5);
  return spec;
}

v1::GridRelative Beit(int height, int width) {
  v1::GridRelative spec = Window(height, width, "class_token: true");
  *spec.mutable_table() =
      RandomRef({(2 * height - 1) * (2 * width - 1) + 3, kHeads}, 6);
  return spec;
}

v1::GridRelative LeVit(int height, int width) {
  v1::GridRelative spec = Window(height, width, "symmetric: true");
  *spec.mutable_table() = RandomRef({height * width, kHeads}, 7);
  return spec;
}

template <typename Encoding>
v1::TensorSpec Dense(const Encoding& encoding) {
  return WithOutput(encoding, kDense);
}

template <typename Encoding>
std::vector<double> Indices(const Encoding& encoding) {
  return EngineHarness().Numbers(WithOutput(Dense(encoding), kBuckets));
}

TEST(GridRelative, IndexMatricesAreThePublishedOnes) {
  EXPECT_THAT(Indices(Window(2, 2)),
              ElementsAre(4, 3, 1, 0, 5, 4, 2, 1, 7, 6, 4, 3, 8, 7, 5, 4));
  std::vector<double> row = Indices(Window(2, 3));
  row.resize(6);
  EXPECT_THAT(row, ElementsAre(7, 6, 5, 2, 1, 0));
  const std::vector<double> seven = Indices(Window(7, 7));
  ASSERT_EQ(seven.size(), 49 * 49);
  EXPECT_EQ(seven[0], 84);
  EXPECT_EQ(seven[48], 0);
  EXPECT_EQ(seven[48 * 49], 168);
  EXPECT_EQ(seven[1], 83);
  EXPECT_EQ(seven[7], 71);
}

TEST(GridRelative, SignReversesBothAxes) {
  EXPECT_THAT(Indices(Window(2, 2, "sign: RELATIVE_SIGN_KEY_MINUS_QUERY")),
              ElementsAre(4, 5, 7, 8, 3, 4, 6, 7, 1, 2, 4, 5, 0, 1, 3, 4));
}

TEST(GridRelative, SymmetricIndicesAreOfMagnitudes) {
  EXPECT_THAT(Indices(Window(2, 3, "symmetric: true")),
              ElementsAre(0, 1, 2, 3, 4, 5,  //
                          1, 0, 1, 4, 3, 4,  //
                          2, 1, 0, 5, 4, 3,  //
                          3, 4, 5, 0, 1, 2,  //
                          4, 3, 4, 1, 0, 1,  //
                          5, 4, 3, 2, 1, 0));
  EXPECT_THAT(Indices(Window(1, 2, "symmetric: true class_token: true")),
              ElementsAre(4, 2, 2,  //
                          3, 0, 1,  //
                          3, 1, 0));
}

TEST(GridRelative, ClassTokenHasThePublishedIndices) {
  EXPECT_THAT(Indices(Window(2, 2, "class_token: true")),
              ElementsAre(11, 9, 9, 9, 9,  //
                          10, 4, 3, 1, 0,  //
                          10, 5, 4, 2, 1,  //
                          10, 7, 6, 4, 3,  //
                          10, 8, 7, 5, 4));
}

TEST(GridRelative, CompactIndicesAreABlockAndABorderWithoutHeads) {
  EngineHarness engine;
  const v1::TensorSpec spec =
      WithOutput(Window(2, 2, "class_token: true"), kBuckets);
  const PlanPtr plan = engine.Plan(spec);
  ASSERT_EQ(plan->parts().size(), 2);
  EXPECT_THAT(plan->parts()[0].shape, ElementsAre(3, 3));
  EXPECT_THAT(plan->parts()[1].shape, ElementsAre(3));
  EXPECT_THAT(engine.Numbers(spec),
              ElementsAre(8, 7, 6, 5, 4, 3, 2, 1, 0, 9, 10, 11));
}

TEST(GridRelative, BiasIsTheTablesRowOfTheIndexRoundedOnce) {
  const v1::GridRelative swin = Swin(3, 4);
  const Table table = TableAt(swin.table());
  const std::vector<double> indices = Indices(swin);
  for (const double scale : {1.0, 1 / 3.0}) {
    for (const DataType type : kFloatTypes) {
      const std::vector<double> got = EngineHarness().Numbers(
          WithOutput(Dense(swin), Typed(type) + Scaled(scale)));
      ASSERT_EQ(got.size(), kHeads * indices.size());
      Number product;
      for (size_t at = 0; at < got.size(); ++at) {
        const auto row = static_cast<int64_t>(indices[at % indices.size()]);
        mpfr_set_d(product,
                   table.At(row, static_cast<int64_t>(at / indices.size())),
                   MPFR_RNDN);
        mpfr_mul_d(product, product, scale, MPFR_RNDN);
        ASSERT_TRUE(Same(got[at], RoundedBy(product, type))) << at;
      }
    }
  }
}

TEST(GridRelative, BiasIsTheTablesRowOfTheIndex) {
  for (const v1::GridRelative& spec : {Beit(3, 2), LeVit(3, 2)}) {
    const Table table = TableAt(spec.table());
    const std::vector<double> got = EngineHarness().Numbers(Dense(spec));
    const std::vector<double> indices = Indices(spec);
    ASSERT_EQ(got.size(), kHeads * indices.size());
    for (size_t at = 0; at < got.size(); ++at) {
      const auto row = static_cast<int64_t>(indices[at % indices.size()]);
      ASSERT_EQ(got[at], table.At(row, at / indices.size())) << at;
    }
  }
}

// dense[h, i, j] of numbers in compact form, as the contract says it.
double FromCompact(const std::vector<double>& numbers, const Grid& grid,
                   bool has_border, int64_t h, int64_t i, int64_t j) {
  const int64_t block = grid.block_height() * grid.block_width();
  if (has_border && (i == 0 || j == 0)) {
    const int64_t place = i != 0 ? 1 : j != 0 ? 0 : 2;
    return numbers[kHeads * block + 3 * h + place];
  }
  i -= has_border ? 1 : 0;
  j -= has_border ? 1 : 0;
  const int64_t rows = j / grid.width - i / grid.width;
  const int64_t columns = j % grid.width - i % grid.width;
  return numbers[h * block + (rows + grid.height - 1) * grid.block_width() +
                 columns + grid.width - 1];
}

// Each kind, small and of more tokens than a slice is worth.
struct GridCase {
  const char* name;
  v1::TensorSpec encoding;
  Grid grid;
  bool has_border;
};

std::vector<GridCase> GridCases() {
  std::vector<GridCase> cases;
  for (const Grid grid :
       {Grid{1, 1}, Grid{1, 4}, Grid{4, 1}, Grid{3, 5}, Grid{20, 9}}) {
    const auto height = static_cast<int>(grid.height);
    const auto width = static_cast<int>(grid.width);
    cases.push_back({"swin", SpecOf(Swin(height, width)), grid, false});
    cases.push_back({"beit", SpecOf(Beit(height, width)), grid, true});
    cases.push_back({"levit", SpecOf(LeVit(height, width)), grid, false});
  }
  return cases;
}

TEST(Grids, DenseIsTheExpandedCompactForm) {
  EngineHarness engine;
  for (const GridCase& c : GridCases()) {
    SCOPED_TRACE(c.name);
    const std::vector<double> compact = engine.Numbers(c.encoding);
    const std::vector<double> dense = engine.Numbers(Dense(c.encoding));
    const int64_t tokens = c.grid.tokens() + (c.has_border ? 1 : 0);
    ASSERT_EQ(dense.size(), kHeads * tokens * tokens);
    size_t at = 0;
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t i = 0; i < tokens; ++i) {
        for (int64_t j = 0; j < tokens; ++j) {
          ASSERT_EQ(dense[at++],
                    FromCompact(compact, c.grid, c.has_border, h, i, j))
              << h << " " << i << " " << j;
        }
      }
    }
  }
}

TEST(Grids, WindowsAreSlicesOfTheWhole) {
  EngineHarness engine;
  for (const GridCase& c : GridCases()) {
    SCOPED_TRACE(c.name);
    const std::vector<double> whole = engine.Numbers(Dense(c.encoding));
    const int64_t tokens = c.grid.tokens() + (c.has_border ? 1 : 0);
    for (const Range queries :
         {Range{0, tokens}, Range{0, 1}, Range{tokens / 2, tokens}}) {
      for (const Range keys :
           {Range{0, tokens}, Range{tokens - 1, tokens},
            Range{tokens / 3, tokens / 3 + (tokens + 1) / 2}}) {
        v1::TensorSpec spec =
            With(Dense(c.encoding), "grid {heads {begin: 1 end: 3}}");
        *spec.mutable_grid()->mutable_queries() =
            RangeOf(queries.begin, queries.end);
        *spec.mutable_grid()->mutable_keys() = RangeOf(keys.begin, keys.end);
        std::vector<double> want;
        for (int64_t h = 1; h < 3; ++h) {
          for (int64_t i = queries.begin; i < queries.end; ++i) {
            for (int64_t j = keys.begin; j < keys.end; ++j) {
              want.push_back(whole[(h * tokens + i) * tokens + j]);
            }
          }
        }
        ASSERT_THAT(engine.Numbers(spec), ElementsAreArray(want));
      }
    }
  }
}

TEST(Grids, HeadsAreSlicesOfTheCompactForm) {
  EngineHarness engine;
  const std::vector<double> whole = engine.Numbers(SpecOf(Beit(3, 5)));
  std::vector<double> want(whole.begin() + 45, whole.begin() + 90);
  want.insert(want.end(), whole.begin() + 138, whole.begin() + 141);
  EXPECT_THAT(
      engine.Numbers(With(Beit(3, 5), "grid {heads {begin: 1 end: 2}}")),
      ElementsAreArray(want));
}

TEST(Grids, AnyReadIsASliceOfTheWhole) {
  // Kept in the cache, and computed while it is read.
  for (const int64_t budget : {int64_t{1} << 30, int64_t{150000}}) {
    EngineHarness engine({.memory_budget_bytes = budget});
    for (const GridCase& c : GridCases()) {
      if (budget < 200000 && c.grid.tokens() > 100) continue;
      SCOPED_TRACE(c.name);
      engine.ExpectSliceable(c.encoding);
      engine.ExpectSliceable(Dense(c.encoding));
      engine.ExpectSliceable(
          With(Dense(c.encoding), "grid {queries {end: 1}}"));
    }
  }
}

TEST(Grids, WhatIsTooLargeToKeepIsTheSame) {
  EngineHarness roomy;
  EngineHarness tiny({.memory_budget_bytes = 10000});
  const v1::TensorSpec spec =
      With(Dense(Beit(7, 9)), "grid {queries {end: 3}}");
  EXPECT_EQ(tiny.Numbers(spec), roomy.Numbers(spec));
}

TEST(Grids, AbsentExtentAndWindowsMeanAll) {
  EngineHarness engine;
  const auto plan = [&](const std::string& extent) {
    return engine.Plan(With(Beit(2, 3), extent));
  };
  const PlanPtr none = plan("");
  EXPECT_EQ(none->fingerprint(), plan("grid {}")->fingerprint());
  EXPECT_EQ(none->fingerprint(),
            plan("grid {queries {end: 7} keys {end: 7} heads {end: 3}}")
                ->fingerprint());
  EXPECT_EQ(none->form(), v1::FORM_BLOCK_TOEPLITZ);
  // Six of the seven tokens are not the whole grid.
  EXPECT_EQ(plan("grid {queries {end: 6}}")->form(), v1::FORM_DENSE);
}

TEST(Grids, RefuseTablesOfAnotherWindow) {
  EXPECT_THAT(RefusalOf(Window(2, 2, "num_heads: 3")),
              IsInvalid("grid_relative.table: not set, want a table of [9 rows "
                        "(2 Wh - 1)(2 Ww - 1), 3 heads (num_heads)], or values "
                        "BUCKETS"));
  const auto refusal_of = [](const std::string& rest) {
    v1::GridRelative spec = Window(2, 3, rest);
    *spec.mutable_table() = RandomRef({9, kHeads}, 5);
    return RefusalOf(spec);
  };
  const std::string got = "grid_relative.table: got shape [9, 3], want ";
  EXPECT_THAT(refusal_of(""), IsInvalid(got + "[15 rows (2 Wh - 1)(2 Ww - 1), "
                                              "3 heads (num_heads)]"));
  EXPECT_THAT(refusal_of("class_token: true"),
              IsInvalid(got + "[18 rows (2 Wh - 1)(2 Ww - 1) + 3, "));
  EXPECT_THAT(refusal_of("symmetric: true"),
              IsInvalid(got + "[6 rows Wh Ww, "));
}

TEST(Grids, RefuseOtherNumbersOfSides) {
  for (const char* window :
       {"num_heads: 3 window: 7", "num_heads: 3 window: [1, 2, 3]"}) {
    EXPECT_THAT(RefusalOf(Parse<v1::GridRelative>(window)),
                IsInvalid("grid_relative.window: got "));
  }
  EXPECT_THAT(RefusalOf(v1::GridRelative()),
              IsInvalid("grid_relative.window: not set, want a list, each an "
                        "integer in [1, 256]"));
  EXPECT_THAT(RefusalOf(Window(2, 257)),
              IsInvalid("grid_relative.window[1]: got 257, want an integer in "
                        "[1, 256]"));
}

TEST(Grids, RefuseWhatDoesNotFitAGrid) {
  const auto refusal = [](const std::string& rest) {
    return EngineHarness().MakePlan(With(Swin(2, 2), rest));
  };
  EXPECT_THAT(refusal("pair {query_length: 4 key_length: 4}"),
              IsInvalid("extent: got pair, want grid or none, which is what "
                        "grid_relative takes"));
  EXPECT_THAT(refusal("grid {queries {end: 5}}"),
              IsInvalid("grid.queries: got [0, 5), want a range that is not "
                        "empty inside [0, 4)"));
  EXPECT_THAT(refusal("grid {keys {begin: -1 end: 4}}"),
              IsInvalid("grid.keys: got [-1, 4), want a range that is not "
                        "empty inside [0, 4)"));
  EXPECT_THAT(refusal("grid {heads {begin: 2 end: 4}}"),
              IsInvalid("grid.heads: got [2, 4)"));
  EXPECT_THAT(refusal("grid {heads {end: 1}} output {values: VALUES_BUCKETS}"),
              IsInvalid("grid.heads: got [0, 1), want none"));
  EXPECT_THAT(refusal("output {form: FORM_TOEPLITZ}"),
              IsInvalid("output.form: got TOEPLITZ, want BLOCK_TOEPLITZ or "
                        "DENSE for grid_relative"));
  EXPECT_THAT(
      refusal("grid {keys {end: 1}} output {form: FORM_BLOCK_TOEPLITZ}"),
      IsInvalid(
          "output.form: got BLOCK_TOEPLITZ, want DENSE for grid_relative in "
          "a part of the grid"));
  EXPECT_THAT(
      refusal("output {mask {causal: true}}"),
      IsInvalid("output.mask: got a mask, want none: the tokens of "
                "grid_relative lie in a grid, and only a sequence can be "
                "masked"));
}

}  // namespace
}  // namespace attnbias::grid_relative_test
