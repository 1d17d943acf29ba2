// SPDX-License-Identifier: Apache-2.0
// Learned biases for grids: the published index matrices, gathers from random tables, and the laws
// for grids and borders, through the engine.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/mpfr_oracle.h"
#include "tests/unit/support/engine_harness.h"
#include "tests/unit/support/filled.h"

namespace attnbias::grid_relative_test {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kHeads = 3;

v1::GridRelative WindowOf(const Grid& grid, const std::string& rest = "") {
  return Parse<v1::GridRelative>(
      absl::StrCat("window: [", absl::StrJoin(grid.sides, ", "), "] ", rest));
}

v1::GridRelative Window(int height, int width, const std::string& rest = "") {
  return WindowOf({{height, width}}, rest);
}

v1::GridRelative Swin(const Grid& grid) {
  v1::GridRelative spec = WindowOf(grid);
  *spec.mutable_table() = RandomRef({grid.coordinates().size(), kHeads}, 5);
  return spec;
}

v1::GridRelative Swin(int height, int width) { return Swin(Grid{{height, width}}); }

v1::GridRelative Beit(const Grid& grid) {
  v1::GridRelative spec = WindowOf(grid, "class_token: true");
  *spec.mutable_table() = RandomRef({grid.coordinates().size() + 3, kHeads}, 6);
  return spec;
}

v1::GridRelative Beit(int height, int width) { return Beit(Grid{{height, width}}); }

v1::GridRelative LeVit(const Grid& grid) {
  v1::GridRelative spec = WindowOf(grid, "symmetric: true");
  *spec.mutable_table() = RandomRef({grid.tokens(), kHeads}, 7);
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

TEST(GridRelative, IndexMatricesMatchPublishedValues) {
  EXPECT_THAT(Indices(Window(2, 2)), ElementsAre(4, 3, 1, 0, 5, 4, 2, 1, 7, 6, 4, 3, 8, 7, 5, 4));
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

TEST(GridRelative, SymmetricIndicesUseMagnitudes) {
  EXPECT_THAT(Indices(Window(2, 3, "symmetric: true")), ElementsAre(0, 1, 2, 3, 4, 5,  //
                                                                    1, 0, 1, 4, 3, 4,  //
                                                                    2, 1, 0, 5, 4, 3,  //
                                                                    3, 4, 5, 0, 1, 2,  //
                                                                    4, 3, 4, 1, 0, 1,  //
                                                                    5, 4, 3, 2, 1, 0));
  EXPECT_THAT(Indices(Window(1, 2, "symmetric: true class_token: true")), ElementsAre(4, 2, 2,  //
                                                                                      3, 0, 1,  //
                                                                                      3, 1, 0));
}

// Video Swin's relative_position_index for a 2 x 1 x 2 window.
TEST(GridRelative, FramesAreTheSlowestAxis) {
  EXPECT_THAT(Indices(WindowOf({{2, 1, 2}})),
              ElementsAre(4, 3, 1, 0, 5, 4, 2, 1, 7, 6, 4, 3, 8, 7, 5, 4));
  std::vector<double> row = Indices(WindowOf({{2, 2, 3}}));
  row.resize(12);
  // The first token is at [1, 1, 2] in a table of 3 x 3 x 5 rows.
  EXPECT_THAT(row, ElementsAre(22, 21, 20, 17, 16, 15, 7, 6, 5, 2, 1, 0));
  row = Indices(WindowOf({{2, 2, 3}}, "symmetric: true"));
  row.resize(12);
  EXPECT_THAT(row, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
}

TEST(GridRelative, OneAxisIsASequence) {
  EXPECT_THAT(Indices(WindowOf({{3}})), ElementsAre(2, 1, 0, 3, 2, 1, 4, 3, 2));
}

// LeViT's attention_bias_idxs for a resolution of 3 and a stride of 2.
TEST(GridRelative, QueryStrideSelectsEveryNthToken) {
  const v1::TensorSpec strided =
      With(Dense(Window(3, 3, "symmetric: true")), "grid {query_stride: [2, 2]}");
  EXPECT_THAT(Indices(strided), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8,  //
                                            2, 1, 0, 5, 4, 3, 8, 7, 6,  //
                                            6, 7, 8, 3, 4, 5, 0, 1, 2,  //
                                            8, 7, 6, 5, 4, 3, 2, 1, 0));
}

TEST(GridRelative, ClassTokenIndicesMatchPublishedValues) {
  EXPECT_THAT(Indices(Window(2, 2, "class_token: true")), ElementsAre(11, 9, 9, 9, 9,  //
                                                                      10, 4, 3, 1, 0,  //
                                                                      10, 5, 4, 2, 1,  //
                                                                      10, 7, 6, 4, 3,  //
                                                                      10, 8, 7, 5, 4));
}

TEST(GridRelative, BiasIsTableRowRoundedOnce) {
  for (const v1::GridRelative& spec :
       {Swin(3, 4), Beit(3, 2), LeVit({{3, 2}}), Swin({{2, 3, 2}})}) {
    const Table table = TableAt(spec.table());
    const std::vector<double> indices = Indices(spec);
    for (const double scale : {1.0, 1 / 3.0}) {
      for (const DataType type : kFloatTypes) {
        const std::vector<double> got =
            EngineHarness().Numbers(WithOutput(Dense(spec), Typed(type) + Scaled(scale)));
        ASSERT_EQ(got.size(), kHeads * indices.size());
        Number product;
        for (size_t at = 0; at < got.size(); ++at) {
          const auto row = static_cast<int64_t>(indices[at % indices.size()]);
          mpfr_set_d(product, table.At(row, static_cast<int64_t>(at / indices.size())), MPFR_RNDN);
          mpfr_mul_d(product, product, scale, MPFR_RNDN);
          ASSERT_TRUE(Same(got[at], RoundedBy(product, type))) << at;
        }
      }
    }
  }
}

// Returns a token's index on one axis of a grid whose last axis varies fastest.
int64_t PlaceOf(int64_t token, const std::vector<int64_t>& sides, size_t axis) {
  for (size_t later = sides.size() - 1; later > axis; --later) {
    token /= sides[later];
  }
  return token % sides[axis];
}

// Returns dense[h, i, j], as the contract defines it, from values in compact form.
double FromCompact(const std::vector<double>& numbers, const Grid& grid,
                   const std::vector<int64_t>& strides, bool has_border, int64_t h, int64_t i,
                   int64_t j) {
  const int64_t block = grid.coordinates().size();
  if (has_border && (i == 0 || j == 0)) {
    const int64_t place = i != 0 ? 1 : j != 0 ? 0 : 2;
    return numbers[kHeads * block + 3 * h + place];
  }
  i -= has_border ? 1 : 0;
  j -= has_border ? 1 : 0;
  int64_t at = 0;
  for (size_t axis = 0; axis < grid.sides.size(); ++axis) {
    const int64_t side = grid.sides[axis];
    const int64_t query = PlaceOf(i, grid.EveryNth(strides).sides, axis) * strides[axis];
    at = at * (2 * side - 1) + PlaceOf(j, grid.sides, axis) - query + side - 1;
  }
  return numbers[h * block + at];
}

// Each kind, small and with more tokens than the slice threshold.
struct GridCase {
  std::string name;
  v1::TensorSpec encoding;
  Grid grid;
  std::vector<int64_t> strides;
  bool has_border;

  int64_t keys() const { return grid.tokens() + (has_border ? 1 : 0); }
  int64_t queries() const { return grid.EveryNth(strides).tokens() + (has_border ? 1 : 0); }
};

std::vector<GridCase> GridCases() {
  std::vector<GridCase> cases;
  for (const std::vector<int64_t>& sides : std::vector<std::vector<int64_t>>{
           {1, 1}, {1, 4}, {4, 1}, {3, 5}, {20, 9}, {7}, {2, 3, 4}, {3, 1, 2}}) {
    const Grid grid = {sides};
    for (const int64_t stride : {1, 2, 3}) {
      std::vector<int64_t> strides(sides.size(), stride);
      if (stride == 3) strides.back() = 1;
      const auto add = [&](const v1::GridRelative& spec) {
        v1::TensorSpec encoding = SpecOf(spec);
        encoding.mutable_grid()->mutable_query_stride()->Add(strides.begin(), strides.end());
        cases.push_back({encoding.ShortDebugString().substr(0, 99), encoding, grid, strides,
                         spec.class_token()});
      };
      add(Swin(grid));
      add(Beit(grid));
      add(LeVit(grid));
    }
  }
  return cases;
}

TEST(Grids, DenseEqualsExpandedCompactForm) {
  EngineHarness engine;
  for (const GridCase& c : GridCases()) {
    SCOPED_TRACE(c.name);
    const std::vector<double> compact = engine.Numbers(c.encoding);
    const std::vector<double> dense = engine.Numbers(Dense(c.encoding));
    ASSERT_EQ(dense.size(), kHeads * c.queries() * c.keys());
    size_t at = 0;
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t i = 0; i < c.queries(); ++i) {
        for (int64_t j = 0; j < c.keys(); ++j) {
          ASSERT_EQ(dense[at++], FromCompact(compact, c.grid, c.strides, c.has_border, h, i, j))
              << h << " " << i << " " << j;
        }
      }
    }
  }
}

TEST(Grids, AnyReadEqualsSliceOfWhole) {
  // With bands cached, and with bands computed during each read.
  for (const int64_t budget : {int64_t{1} << 30, int64_t{150000}}) {
    EngineHarness engine({.memory_budget_bytes = budget});
    for (const GridCase& c : GridCases()) {
      if (budget < 200000 && c.grid.tokens() > 100) continue;
      if (c.grid.tokens() > 100 && c.strides.back() != 2) continue;
      SCOPED_TRACE(c.name);
      engine.ExpectSliceable(c.encoding);
      engine.ExpectSliceable(Dense(c.encoding));
      engine.ExpectSliceable(With(Dense(c.encoding), "grid {queries {end: 1}}"));
    }
  }
}

TEST(Grids, AbsentExtentAndWindowsMeanAll) {
  EngineHarness engine;
  const auto plan = [&](const std::string& extent) {
    return engine.Plan(With(Beit(2, 3), extent));
  };
  const PlanPtr none = plan("");
  EXPECT_EQ(none->fingerprint(), plan("grid {}")->fingerprint());
  EXPECT_EQ(none->fingerprint(),
            plan("grid {queries {end: 7} keys {end: 7} heads {end: 3}}")->fingerprint());
  EXPECT_EQ(none->fingerprint(), plan("grid {query_stride: [1, 1]}")->fingerprint());
  EXPECT_EQ(plan("grid {query_stride: [1, 1]}")->resolved_spec().grid().query_stride_size(), 0);
  EXPECT_EQ(none->form(), v1::FORM_BLOCK_TOEPLITZ);
  // Six of the seven tokens do not make up the whole grid.
  EXPECT_EQ(plan("grid {queries {end: 6}}")->form(), v1::FORM_DENSE);
}

TEST(Grids, StridesShareTheBandButNotTheFingerprint) {
  EngineHarness engine;
  const auto strided = [&](const std::string& strides) {
    return With(Beit(3, 4), "grid {query_stride: [" + strides + "]}");
  };
  const PlanPtr whole = engine.Plan(SpecOf(Beit(3, 4)));
  const PlanPtr rows = engine.Plan(strided("2, 1"));
  EXPECT_EQ(rows->form(), v1::FORM_BLOCK_TOEPLITZ);
  EXPECT_EQ(rows->band_key(), whole->band_key());
  EXPECT_NE(rows->fingerprint(), whole->fingerprint());
  EXPECT_NE(rows->fingerprint(), engine.Plan(strided("1, 2"))->fingerprint());
  EXPECT_EQ(rows->resolved_spec().grid().queries().end(), 9);
  EXPECT_EQ(rows->resolved_spec().grid().keys().end(), 13);
  // A stride longer than the side keeps the first token.
  EXPECT_EQ(engine.Plan(strided("3, 256"))->window().queries.size(), 2);
}

TEST(Grids, RejectTablesOfAnotherWindow) {
  EXPECT_THAT(RefusalOf(Window(2, 2, "num_heads: 3")),
              IsInvalid("grid_relative.table: not set, want a table of [rows, "
                        "num_heads], or values BUCKETS"));
  const auto refusal_of = [](const std::string& rest) {
    v1::GridRelative spec = Window(2, 3, rest);
    *spec.mutable_table() = RandomRef({9, kHeads}, 5);
    return RefusalOf(spec);
  };
  const std::string got = "grid_relative.table: got 9 rows, want ";
  EXPECT_THAT(refusal_of(""), IsInvalid(got + "15 = 3 x 5 without resample"));
  EXPECT_THAT(refusal_of("class_token: true"), IsInvalid(got + "18 = 3 x 5 + 3 without resample"));
  EXPECT_THAT(refusal_of("symmetric: true"), IsInvalid(got + "6 = 2 x 3 without resample"));
}

TEST(Grids, RejectResamplingOfThreeAxes) {
  v1::GridRelative spec = WindowOf({{2, 2, 2}}, "resample {source: [3, 3]}");
  *spec.mutable_table() = RandomRef({27, kHeads}, 5);
  EXPECT_THAT(RefusalOf(spec), IsInvalid("grid_relative.resample: got a window of 3 axes, want "
                                         "at most 2: resample the table before you send it"));
}

TEST(Grids, RejectResamplingOfClassTokenRowsOnly) {
  for (int64_t rows = 1; rows <= 3; ++rows) {
    v1::GridRelative spec = WindowOf({{2}}, "class_token: true resample {}");
    *spec.mutable_table() = RandomRef({rows, kHeads}, 5);
    EXPECT_THAT(RefusalOf(spec), IsInvalid(absl::StrCat("grid_relative.table: got ", rows,
                                                        " rows, want more than the 3 that a class "
                                                        "token takes")));
  }
}

TEST(Grids, RejectInvalidWindowSides) {
  EXPECT_THAT(RefusalOf(Parse<v1::GridRelative>("num_heads: 3 window: [1, 2, 3, 4]")),
              IsInvalid("grid_relative.window: got 4 numbers, want at most 3"));
  EXPECT_THAT(RefusalOf(v1::GridRelative()),
              IsInvalid("grid_relative.window: not set, want a list, each an "
                        "integer in [1, 256]"));
  EXPECT_THAT(RefusalOf(Window(2, 257)),
              IsInvalid("grid_relative.window[1]: got 257, want an integer in "
                        "[1, 256]"));
}

TEST(Grids, RejectInvalidGridExtents) {
  const std::pair<const char*, const char*> kCases[] = {
      {"pair {query_length: 4 key_length: 4}",
       "extent: got pair, want grid or none, as grid_relative requires"},
      {"grid {queries {end: 5}}",
       "grid.queries: got [0, 5), want a nonempty range inside [0, "
       "4)"},
      {"grid {keys {begin: -1 end: 4}}",
       "grid.keys: got [-1, 4), want a nonempty range inside [0, 4)"},
      {"grid {query_stride: 2}",
       "grid.query_stride: got 1 numbers, want 2, one for each axis of window"},
      {"grid {query_stride: [2, 0]}", "grid.query_stride[1]: got 0, want an integer in [1, 256]"},
      {"grid {query_stride: [2, 2] queries {end: 2}}",
       "grid.queries: got [0, 2), want a nonempty range inside [0, "
       "1)"},
      {"grid {heads {begin: 2 end: 4}}", "grid.heads: got [2, 4)"},
      {"grid {heads {end: 1}} output {values: VALUES_BUCKETS}",
       "grid.heads: got [0, 1), want none"},
      {"output {form: FORM_TOEPLITZ}",
       "output.form: got TOEPLITZ, want BLOCK_TOEPLITZ or DENSE for "
       "grid_relative"},
      {"grid {keys {end: 1}} output {form: FORM_BLOCK_TOEPLITZ}",
       "output.form: got BLOCK_TOEPLITZ, want DENSE for grid_relative in a "
       "part of the grid"},
      {"output {mask {causal: true}}",
       "output.mask: got a mask, want none: the tokens of grid_relative form a "
       "grid, and only a sequence can be masked"}};
  for (const auto& [rest, says] : kCases) {
    EXPECT_THAT(EngineHarness().MakePlan(With(Swin(2, 2), rest)), IsInvalid(says));
  }
  EXPECT_THAT(EngineHarness().MakePlan(WithOutput(WindowOf({{17, 64, 64}}), kBuckets)),
              IsInvalid("grid_relative.window: got 69632 tokens, want at most 65536"));
}

}  // namespace
}  // namespace attnbias::grid_relative_test
