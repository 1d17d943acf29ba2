// SPDX-License-Identifier: Apache-2.0
// Swin's and BEiT's biases: the published index matrices, gathers of random
// tables, and the laws of grids and borders through the engine.
#include "core/encoding/spec/swin.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/encoding/make_encoding.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/mpfr_oracle.h"
#include "tests/testing/engine_harness.h"
#include "tests/testing/status_matchers.h"

namespace attnbias::swin_test {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int64_t kHeads = 3;

SwinSpec Swin(int64_t height, int64_t width) {
  return {
      .window_height = height,
      .window_width = width,
      .num_heads = kHeads,
      .table = RandomTable({(2 * height - 1) * (2 * width - 1), kHeads}, 5)};
}

BeitSpec Beit(int64_t height, int64_t width) {
  return {.window_height = height,
          .window_width = width,
          .num_heads = kHeads,
          .table =
              RandomTable({(2 * height - 1) * (2 * width - 1) + 3, kHeads}, 6)};
}

TensorSpec Dense(EncodingSpec encoding) {
  return {std::move(encoding), {}, {.form = Form::kDense}};
}

std::vector<double> Indices(EncodingSpec encoding) {
  TensorSpec spec = Dense(std::move(encoding));
  spec.output.values = Values::kBuckets;
  return EngineHarness().Numbers(spec);
}

TEST(Swin, IndexMatricesAreThePublishedOnes) {
  EXPECT_THAT(Indices(SwinSpec{2, 2}),
              ElementsAre(4, 3, 1, 0, 5, 4, 2, 1, 7, 6, 4, 3, 8, 7, 5, 4));
  std::vector<double> row = Indices(SwinSpec{2, 3});
  row.resize(6);
  EXPECT_THAT(row, ElementsAre(7, 6, 5, 2, 1, 0));
  const std::vector<double> seven = Indices(SwinSpec{7, 7});
  ASSERT_EQ(seven.size(), 49 * 49);
  EXPECT_EQ(seven[0], 84);
  EXPECT_EQ(seven[48], 0);
  EXPECT_EQ(seven[48 * 49], 168);
  EXPECT_EQ(seven[1], 83);
  EXPECT_EQ(seven[7], 71);
}

TEST(Beit, IndexMatrixIsThePublishedOne) {
  EXPECT_THAT(Indices(BeitSpec{2, 2}), ElementsAre(11, 9, 9, 9, 9,  //
                                                   10, 4, 3, 1, 0,  //
                                                   10, 5, 4, 2, 1,  //
                                                   10, 7, 6, 4, 3,  //
                                                   10, 8, 7, 5, 4));
}

TEST(Beit, CompactIndicesAreABlockAndABorderWithoutHeads) {
  EngineHarness engine;
  const TensorSpec spec{BeitSpec{2, 2}, {}, {.values = Values::kBuckets}};
  const PlanPtr plan = engine.Plan(spec);
  ASSERT_EQ(plan->parts().size(), 2);
  EXPECT_THAT(plan->parts()[0].shape, ElementsAre(3, 3));
  EXPECT_THAT(plan->parts()[1].shape, ElementsAre(3));
  EXPECT_THAT(engine.Numbers(spec),
              ElementsAre(8, 7, 6, 5, 4, 3, 2, 1, 0, 9, 10, 11));
}

TEST(Swin, BiasIsTheTablesRowOfTheIndexRoundedOnce) {
  for (const double scale : {1.0, 1 / 3.0}) {
    for (const DataType type : kFloatTypes) {
      const SwinSpec swin = Swin(3, 4);
      TensorSpec spec = Dense(swin);
      spec.output.data_type = type;
      spec.output.scale = scale;
      const std::vector<double> got = EngineHarness().Numbers(spec);
      const std::vector<double> indices = Indices(swin);
      ASSERT_EQ(got.size(), kHeads * indices.size());
      Number product;
      for (size_t at = 0; at < got.size(); ++at) {
        const auto row = static_cast<int64_t>(indices[at % indices.size()]);
        mpfr_set_d(
            product,
            swin.table->At(row, static_cast<int64_t>(at / indices.size())),
            MPFR_RNDN);
        mpfr_mul_d(product, product, scale, MPFR_RNDN);
        ASSERT_TRUE(Same(got[at], RoundedBy(product, type))) << at;
      }
    }
  }
}

TEST(Beit, BiasIsTheTablesRowOfTheIndex) {
  const BeitSpec beit = Beit(3, 2);
  const std::vector<double> got = EngineHarness().Numbers(Dense(beit));
  const std::vector<double> indices = Indices(beit);
  ASSERT_EQ(got.size(), kHeads * indices.size());
  for (size_t at = 0; at < got.size(); ++at) {
    const auto row = static_cast<int64_t>(indices[at % indices.size()]);
    ASSERT_EQ(got[at], beit.table->At(row, at / indices.size())) << at;
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

// Both encodings, small and of more tokens than a slice is worth.
struct GridCase {
  const char* name;
  EncodingSpec encoding;
  Grid grid;
  bool has_border;
};

std::vector<GridCase> GridCases() {
  std::vector<GridCase> cases;
  for (const Grid grid :
       {Grid{1, 1}, Grid{1, 4}, Grid{4, 1}, Grid{3, 5}, Grid{20, 9}}) {
    cases.push_back({"swin", Swin(grid.height, grid.width), grid, false});
    cases.push_back({"beit", Beit(grid.height, grid.width), grid, true});
  }
  return cases;
}

TEST(Grids, DenseIsTheExpandedCompactForm) {
  EngineHarness engine;
  for (const GridCase& c : GridCases()) {
    SCOPED_TRACE(c.name);
    const std::vector<double> compact = engine.Numbers({c.encoding, {}, {}});
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
        TensorSpec spec = Dense(c.encoding);
        spec.extent = GridExtent{queries, keys, Range{1, 3}};
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
  const std::vector<double> whole = engine.Numbers({Beit(3, 5), {}, {}});
  std::vector<double> want(whole.begin() + 45, whole.begin() + 90);
  want.insert(want.end(), whole.begin() + 138, whole.begin() + 141);
  TensorSpec spec{Beit(3, 5), GridExtent{.heads = Range{1, 2}}, {}};
  EXPECT_THAT(engine.Numbers(spec), ElementsAreArray(want));
}

TEST(Grids, AnyReadIsASliceOfTheWhole) {
  // Kept in the cache, and computed while it is read.
  for (const int64_t budget : {int64_t{1} << 30, int64_t{150000}}) {
    EngineHarness engine({.memory_budget_bytes = budget});
    for (const GridCase& c : GridCases()) {
      if (budget < 200000 && c.grid.tokens() > 100) continue;
      SCOPED_TRACE(c.name);
      engine.ExpectSliceable({c.encoding, {}, {}});
      engine.ExpectSliceable(Dense(c.encoding));
      TensorSpec window = Dense(c.encoding);
      window.extent = GridExtent{.queries = Range{0, 1}};
      engine.ExpectSliceable(window);
    }
  }
}

TEST(Grids, WhatIsTooLargeToKeepIsTheSame) {
  EngineHarness roomy;
  EngineHarness tiny({.memory_budget_bytes = 10000});
  const TensorSpec spec{
      Beit(7, 9), GridExtent{.queries = Range{0, 3}}, {.form = Form::kDense}};
  EXPECT_EQ(tiny.Numbers(spec), roomy.Numbers(spec));
}

TEST(Grids, AbsentExtentAndWindowsMeanAll) {
  EngineHarness engine;
  const PlanPtr none = engine.Plan({Beit(2, 3), {}, {}});
  const PlanPtr empty = engine.Plan({Beit(2, 3), GridExtent(), {}});
  const PlanPtr whole = engine.Plan(
      {Beit(2, 3), GridExtent{Range{0, 7}, Range{0, 7}, Range{0, 3}}, {}});
  EXPECT_EQ(none->fingerprint(), empty->fingerprint());
  EXPECT_EQ(none->fingerprint(), whole->fingerprint());
  EXPECT_EQ(engine.Plan(none->resolved_spec())->fingerprint(),
            none->fingerprint());
  EXPECT_EQ(none->form(), Form::kBlockToeplitz2D);
  // Six of the seven tokens are not the whole grid.
  const PlanPtr part =
      engine.Plan({Beit(2, 3), GridExtent{.queries = Range{0, 6}}, {}});
  EXPECT_EQ(part->form(), Form::kDense);
}

TEST(Grids, BadRequestsAreRefusedByField) {
  struct Case {
    const char* name;
    TensorSpec spec;
    const char* message;
  };
  PairExtent pair;
  pair.query_length = pair.key_length = 4;
  SwinSpec high = Swin(2, 2);
  high.window_height = 0;
  SwinSpec wide = Swin(2, 2);
  wide.window_width = 257;
  SwinSpec headless = Swin(2, 2);
  headless.num_heads = 0;
  headless.table.reset();
  SwinSpec bare = Swin(2, 2);
  bare.table.reset();
  SwinSpec other = Swin(2, 2);
  other.window_width = 3;
  BeitSpec without_class = Beit(2, 2);
  without_class.table = Swin(2, 2).table;
  const Case cases[] = {
      {"height",
       {high, {}, {}},
       "swin.window_height: not set, want an integer in [1, 256]"},
      {"width", {wide, {}, {}}, "swin.window_width: got 257"},
      {"heads", {headless, {}, {}}, "swin.num_heads: not set"},
      {"no table",
       {bare, {}, {}},
       "swin.table: not set, want a table of [9 displacements "},
      {"table of another window",
       {other, {}, {}},
       "swin.table: got shape [9, 3], want [15 displacements (2 Wh - 1)(2 Ww - "
       "1), 3 heads (num_heads)]"},
      {"Swin's table",
       {without_class, {}, {}},
       "beit.table: got shape [9, 3], want [12 displacements (2 Wh - 1)(2 Ww - "
       "1) + 3, 3 heads (num_heads)]"},
      {"pair",
       {Swin(2, 2), pair, {}},
       "extent: got pair, want grid or none, which is what swin takes"},
      {"queries",
       {Swin(2, 2), GridExtent{.queries = Range{0, 5}}, {}},
       "grid.queries: got [0, 5), want a range that is not empty inside [0, "
       "4)"},
      {"keys",
       {Beit(2, 2), GridExtent{.keys = Range{-1, 5}}, {}},
       "grid.keys: got [-1, 5), want a range that is not empty inside [0, 5)"},
      {"window heads",
       {Swin(2, 2), GridExtent{.heads = Range{2, 4}}, {}},
       "grid.heads: got [2, 4)"},
      {"heads of indices",
       {Swin(2, 2),
        GridExtent{.heads = Range{0, 1}},
        {.values = Values::kBuckets}},
       "grid.heads: got [0, 1), want none"},
      {"form",
       {Swin(2, 2), {}, {.form = Form::kToeplitz}},
       "output.form: got TOEPLITZ, want BLOCK_TOEPLITZ_2D or DENSE for swin"},
      {"form of a part",
       {Swin(2, 2),
        GridExtent{.keys = Range{0, 1}},
        {.form = Form::kBlockToeplitz2D}},
       "output.form: got BLOCK_TOEPLITZ_2D, want DENSE for swin in a part of "
       "the grid"},
      {"mask",
       {Swin(2, 2), {}, {.mask = Mask{.causal = true}}},
       "output.mask: got a mask, want none: the tokens of swin lie in "
       "a grid, and only a sequence can be masked"},
      {"scaled indices",
       {Beit(2, 2), {}, {.values = Values::kBuckets, .scale = 2}},
       "output.scale: got 2, want none"},
      {"scale", {Beit(2, 2), {}, {.scale = NAN}}, "output.scale: got nan"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_THAT(
        EngineHarness().MakePlan(c.spec),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message)));
  }
}

}  // namespace
}  // namespace attnbias::swin_test
