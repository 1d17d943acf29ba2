// SPDX-License-Identifier: Apache-2.0
// Laws that hold for every answer: a dense matrix equals its expanded diagonals, a window is a
// slice of the whole, a list equals its positions one by one, masked elements hold the fill and all
// others are unchanged, and the bytes do not depend on how they are read.
#include "core/engine/engine.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/engine_harness.h"
#include "tests/unit/support/filled.h"

namespace attnbias::engine_test {
namespace {

using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Has 6 heads, like all pair encodings here.
v1::TensorSpec RandomT5(bool bidirectional) {
  v1::TensorSpec spec;
  spec.mutable_t5()->set_bidirectional(bidirectional);
  *spec.mutable_t5()->mutable_table() = RandomRef({32, 6}, 7);
  return spec;
}

v1::TensorSpec Alibi(v1::AlibiVariant variant) {
  v1::TensorSpec spec;
  spec.mutable_alibi()->set_num_heads(6);
  spec.mutable_alibi()->set_variant(variant);
  return spec;
}

v1::TensorSpec Sinusoidal(int dim) {
  v1::TensorSpec spec;
  spec.mutable_sinusoidal()->set_dim(dim);
  return spec;
}

bool Hides(const v1::Mask& mask, int64_t i, int64_t j) {
  return (mask.causal() && j > i) || (mask.has_window_left() && j < i - mask.window_left()) ||
         (mask.has_window_right() && j > i + mask.window_right());
}

class EngineTest : public ::testing::Test, protected EngineHarness {
 protected:
  using EngineHarness::EngineHarness;

  // Returns dense[h, i, j] from an answer in compact form.
  std::vector<double> Expand(v1::TensorSpec spec, int64_t heads, int64_t queries, int64_t keys) {
    spec.mutable_output()->clear_form();
    const std::vector<double> numbers = Numbers(spec);
    const bool toeplitz = static_cast<int64_t>(numbers.size()) == heads * (queries + keys - 1);
    std::vector<double> dense;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < queries; ++i) {
        for (int64_t j = 0; j < keys; ++j) {
          dense.push_back(toeplitz ? numbers[h * (queries + keys - 1) + j - i + queries - 1]
                                   : numbers[h * keys + j]);
        }
      }
    }
    return dense;
  }
};

// Returns every pair structure that this library has, both small and above the length at which rows
// become slices.
std::vector<v1::TensorSpec> PairSpecs() {
  std::vector<v1::TensorSpec> specs;
  for (const auto& [queries, keys, offset] :
       {std::tuple(5, 9, 4), std::tuple(9, 5, -3), std::tuple(40, 1500, 0), std::tuple(1, 7, 6)}) {
    for (const v1::TensorSpec& spec :
         {RandomT5(true), RandomT5(false), Alibi(v1::ALIBI_VARIANT_SYMMETRIC),
          Alibi(v1::ALIBI_VARIANT_CAUSAL), Alibi(v1::ALIBI_VARIANT_KEY_FROM_START),
          Alibi(v1::ALIBI_VARIANT_KEY_FROM_END)}) {
      specs.push_back(OverPairs(spec, queries, keys, offset));
    }
  }
  return specs;
}

v1::TensorSpec Dense(const v1::TensorSpec& spec) { return WithOutput(spec, kDense); }

v1::TensorSpec Masked(const v1::TensorSpec& spec, const std::string& mask) {
  return WithOutput(spec, "mask {" + mask + "}");
}

TEST_F(EngineTest, DenseEqualsExpandedCompactForm) {
  for (const v1::TensorSpec& spec : PairSpecs()) {
    EXPECT_EQ(Numbers(Dense(spec)),
              Expand(spec, 6, spec.pair().query_length(), spec.pair().key_length()));
  }
}

// Every column equals the same column of a table in which all axes have the positions of that
// column's axis.
TEST_F(EngineTest, ColumnsUsePositionsOfTheirAxis) {
  const std::vector<std::vector<int64_t>> lists = {
      {0, 1, 2, 3, 4}, {9, 9, 8, 8, 7}, {-5, 1 << 20, 3, 3, 0}};
  for (const char* axes : {"axes {} axes {} axes {} pair_axis: [0, 0, 0, 0, 1, 1, 2, 2]",
                           "axes {} axes {} axes {} pair_axis: [0, 1, 2, 0, 1, 2, 0, 0]",
                           "axes {ladder {}} axes {scale: 3 length: 7} "
                           "axes {ladder {timescales {}}} pair_axis: [0, 0, 0, 0, 1, 1, 2, 2]"}) {
    for (const auto layout :
         {v1::ROTARY_LAYOUT_HALF, v1::ROTARY_LAYOUT_INTERLEAVED, v1::ROTARY_LAYOUT_COMPACT}) {
      auto spec = Parse<v1::TensorSpec>(absl::StrCat("rotary {head_dim: 16 ", axes, "}"));
      spec.mutable_rotary()->set_layout(layout);
      const PlanPtr plan = Plan(AtPositions(spec, lists));
      const std::vector<double> numbers = Numbers(AtPositions(spec, lists));
      const int64_t width = plan->encoding().width;
      for (const AxisColumns& run : plan->encoding().axis_columns) {
        const std::vector<double> alone = Numbers(AtPositions(spec, {3, lists[run.axis]}));
        ASSERT_EQ(alone.size(), numbers.size());
        for (int64_t row = 0; row < int64_t{2} * 5; ++row) {
          for (int64_t column = run.columns.begin; column < run.columns.end; ++column) {
            ASSERT_EQ(numbers[row * width + column], alone[row * width + column]);
          }
        }
      }
    }
  }
}

TEST_F(EngineTest, EqualAxesMatchOneAxis) {
  const std::vector<int64_t> list = {5, 0, 77};
  const auto one_axis = Parse<v1::TensorSpec>("rotary {head_dim: 128}");
  const auto two_axes = Parse<v1::TensorSpec>("rotary {head_dim: 128 axes {} axes {}}");
  EXPECT_EQ(Numbers(AtPositions(two_axes, {2, list})), Numbers(AtPositions(one_axis, {list})));
  EXPECT_THAT(MakePlan(AtPositions(two_axes, {list})),
              IsInvalidWith("table.position_ids: got 1 lists, want 2"));
  // The last column belongs to the first axis, but there are three axes.
  const auto last_of_first = Parse<v1::TensorSpec>(
      "rotary {head_dim: 8 axes {} axes {} axes {} pair_axis: [0, 1, 2, 0] "
      "layout: ROTARY_LAYOUT_COMPACT}");
  EXPECT_THAT(MakePlan(AtPositions(last_of_first, {3, list})), IsOk());
}

// Encodings that divide their columns between axes in different ways.
std::vector<v1::TensorSpec> GridSpecs() {
  std::vector<v1::TensorSpec> specs;
  for (const char* encoding : {"rotary {head_dim: 16 axes {} axes {} axes {} "
                               "pair_axis: [0, 1, 2, 0, 1, 2, 0, 0]}",
                               "rotary {head_dim: 16 axes {} axes {} axes {} "
                               "pair_axis: [0, 1, 2, 0, 1, 2, 0, 0] "
                               "layout: ROTARY_LAYOUT_INTERLEAVED}",
                               "sinusoidal {dim: 12 axes {} axes {scale: 2} axes {offset: 0.5} "
                               "columns: COLUMNS_SINES_COSINES across_axes: true}",
                               // The zero column at the end may count as part of the last axis.
                               "sinusoidal {dim: 13 axes {} axes {} axes {} axis_dims: [4, 4, 5] "
                               "odd: ODD_COLUMN_ZERO}"}) {
    specs.push_back(Parse<v1::TensorSpec>(encoding));
  }
  return specs;
}

// Returns one list per axis, covering all tokens.
std::vector<std::vector<int64_t>> TokensOf(const std::vector<int64_t>& lengths,
                                           const std::vector<int64_t>& offset) {
  std::vector<std::vector<int64_t>> lists(3);
  for (int64_t i = 0; i < lengths[0]; ++i) {
    for (int64_t j = 0; j < lengths[1]; ++j) {
      for (int64_t k = 0; k < lengths[2]; ++k) {
        lists[0].push_back(offset[0] + i);
        lists[1].push_back(offset[1] + j);
        lists[2].push_back(offset[2] + k);
      }
    }
  }
  return lists;
}

// The second offset is too far from the others to share a band.
TEST_F(EngineTest, GridEqualsItsTokensAsList) {
  const std::vector<int64_t> lengths = {2, 5, 3};
  for (const std::vector<int64_t>& offset :
       {std::vector<int64_t>{-1, 0, 4}, std::vector<int64_t>{0, 1 << 30, 7}}) {
    for (const v1::TensorSpec& encoding : GridSpecs()) {
      const v1::TensorSpec spec = OverGrid(encoding, lengths, offset);
      const std::vector<double> listed = Numbers(AtPositions(encoding, TokensOf(lengths, offset)));
      EXPECT_EQ(Numbers(Dense(spec)), listed);
      ExpectSliceable(Dense(spec));
      ExpectSliceable(spec);

      const PlanPtr plan = Plan(spec);
      const std::vector<int32_t> axes = plan->ColumnAxes();
      const int64_t width = plan->encoding().width;
      ASSERT_EQ(axes.size(), width);
      const std::vector<double> by_axis = Numbers(spec);
      for (size_t part = 0; part < plan->parts().size(); ++part) {
        const int64_t axis = static_cast<int64_t>(part) % 3;
        const int64_t lane = static_cast<int64_t>(part) / 3;
        const int64_t stride = axis == 0 ? 15 : axis == 1 ? 3 : 1;
        auto number = by_axis.begin() + plan->parts()[part].offset / 4;
        ASSERT_EQ(plan->parts()[part].shape[0], lengths[axis]);
        for (int64_t row = 0; row < lengths[axis]; ++row) {
          for (int64_t column = 0; column < width; ++column) {
            if (axes[column] != axis) continue;
            ASSERT_EQ(*number++, listed[(lane * 30 + row * stride) * width + column]);
          }
        }
      }
    }
  }
}

TEST_F(EngineTest, GridReusesBandsOfPositions) {
  (void)Whole(OverPositions(GridSpecs()[0], 0, 64));
  EXPECT_EQ(computed(), 1);
  (void)Whole(OverGrid(GridSpecs()[0], {2, 45, 60}));
  (void)Whole(Dense(OverGrid(GridSpecs()[0], {64, 2, 3}, {0, 60, 61})));
  EXPECT_EQ(computed(), 1);
}

TEST_F(EngineTest, GridFingerprintFollowsItsContent) {
  const v1::TensorSpec encoding = GridSpecs()[0];
  const auto name = [&](const v1::TensorSpec& spec) { return Plan(spec)->fingerprint(); };
  const std::string whole = name(OverGrid(encoding, {3, 3, 3}, {0, 0, 1}));
  EXPECT_NE(name(AtPositions(encoding, {{0, 1, 2}, {0, 1, 2}, {1, 2, 3}})), whole);
  EXPECT_NE(name(OverGrid(encoding, {3, 3, 3})), whole);
  EXPECT_NE(name(Dense(OverGrid(encoding, {3, 3, 3}, {0, 0, 1}))), whole);
  EXPECT_EQ(name(OverGrid(encoding, {3, 3, 3}, {0, 0, 0})), name(OverGrid(encoding, {3, 3, 3})));
}

TEST_F(EngineTest, RejectsInvalidGrids) {
  const v1::TensorSpec encoding = GridSpecs()[0];
  const int64_t far = int64_t{1} << 40;
  const auto refusal = [&](const v1::TensorSpec& spec) {
    return std::string(MakePlan(spec).status().message());
  };
  EXPECT_EQ(refusal(OverGrid(encoding, {2, 3})),
            "table.grid: got 2 lengths, want 3, one for each axis");
  EXPECT_EQ(refusal(OverGrid(Sinusoidal(4), {2})),
            "table.grid: got 1 lengths, want positions or position_ids: "
            "sinusoidal has one axis here");
  EXPECT_EQ(refusal(OverGrid(encoding, {2, 3, 4}, {1})),
            "table.grid_offset: got 1 numbers, want 3 (grid)");
  EXPECT_EQ(refusal(OverGrid(encoding, {2, 3, 0})),
            "table.grid[2]: got 0, want an integer in [1, 262144]");
  EXPECT_EQ(refusal(OverGrid(encoding, {}, {1})),
            "table.grid_offset: got 1 numbers, want none without grid");
  EXPECT_THAT(refusal(OverGrid(encoding, {2, 2, 2}, {0, far, 0})),
              HasSubstr("table.grid[1]: got ["));
  EXPECT_EQ(refusal(OverGrid(encoding, {1 << 18, 1 << 18, 32})),
            "table.grid: got more than 2^40 tokens, want at most 2^40");
  EXPECT_EQ(refusal(OverGrid(OverPositions(encoding, 0, 1), {1, 1, 1})),
            "table: got several of positions, position_ids and grid, want one "
            "of them");
}

v1::TensorSpec AtReals(v1::TensorSpec spec, const std::vector<std::vector<double>>& lists) {
  for (const std::vector<double>& list : lists) {
    spec.mutable_table()->add_position_ids()->mutable_doubles()->Add(list.begin(), list.end());
  }
  return spec;
}

TEST_F(EngineTest, IntegralDoublesEqualIntegers) {
  for (const v1::TensorSpec& encoding :
       {Sinusoidal(8), Parse<v1::TensorSpec>("rotary {head_dim: 8}")}) {
    EXPECT_EQ(Plan(AtReals(encoding, {{-2, -1, 0, -0.0 + 1}}))->fingerprint(),
              Plan(OverPositions(encoding, -2, 2))->fingerprint());
    const PlanPtr plan = Plan(AtReals(encoding, {{5, -0.0, 77}}));
    EXPECT_EQ(plan->fingerprint(), Plan(AtPositions(encoding, {{5, 0, 77}}))->fingerprint());
    EXPECT_EQ(plan->resolved_spec().table().position_ids(0).positions_size(), 3);
  }
  v1::TensorSpec pairs = Alibi(v1::ALIBI_VARIANT_SYMMETRIC);
  for (const double p : {3.0, 1.0}) {
    pairs.mutable_pair()->mutable_query_positions()->add_doubles(p);
    pairs.mutable_pair()->mutable_key_positions()->add_doubles(p);
  }
  EXPECT_EQ(Plan(pairs)->fingerprint(),
            Plan(AtPairs(Alibi(v1::ALIBI_VARIANT_SYMMETRIC), {3, 1}, {3, 1}))->fingerprint());
}

// A position's row does not depend on the other positions, and a band of rows at integer positions
// is never confused with one at doubles.
TEST_F(EngineTest, RowsAtDoublesAreIndependent) {
  const auto two_axes =
      Parse<v1::TensorSpec>("sinusoidal {dim: 12 axes {} axes {offset: 0.5 ladder {}}}");
  const std::vector<double> integers = Numbers(AtPositions(two_axes, {{0, 1, 2}, {0, 1, 2}}));
  const v1::TensorSpec listed = AtReals(two_axes, {{0, 0.5, 2}, {0, 1.25, 2}});
  for (int i = 0; i < 2; ++i) {
    const std::vector<double> numbers = Numbers(listed);
    for (int column = 0; column < 12; ++column) {
      EXPECT_EQ(numbers[column], integers[column]);
      EXPECT_NE(numbers[12 + column], integers[12 + column]);
      EXPECT_EQ(numbers[24 + column], integers[24 + column]);
    }
  }
  const PlanPtr plan = Plan(listed);
  EXPECT_EQ(Plan(plan->resolved_spec())->fingerprint(), plan->fingerprint());
  v1::TensorSpec mixed = AtReals(two_axes, {{0, 0.5, 2}});
  for (const int64_t p : {0, 1, 2}) {
    if (p == 0) mixed.mutable_table()->add_position_ids();
    mixed.mutable_table()->mutable_position_ids(1)->add_positions(p);
  }
  EXPECT_EQ(Plan(mixed)->fingerprint(),
            Plan(AtReals(two_axes, {{-0.0, 0.5, 2}, {0, 1, 2}}))->fingerprint());
  EXPECT_NE(Plan(mixed)->fingerprint(), plan->fingerprint());
}

TEST_F(EngineTest, RejectsInvalidDoubles) {
  const auto refusal = [&](const std::string& encoding,
                           const std::vector<std::vector<double>>& lists) {
    const auto spec = Parse<v1::TensorSpec>(encoding);
    return std::string(MakePlan(AtReals(spec, lists)).status().message());
  };
  const std::string plain = "sinusoidal {dim: 4}";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(refusal(plain, {{0.5, nan}}),
            "table.position_ids[0].doubles[1]: got nan, want a number p in "
            "[-2^40, 2^40] such that p is 0 or k 2^e of magnitude at least 2^-149, "
            "with |k| at most 2^62");
  EXPECT_THAT(refusal(plain, {{1e300}}),
              HasSubstr("table.position_ids[0].doubles[0]: got 1e+300, want "));
  EXPECT_THAT(refusal(plain, {{0.5, -std::numeric_limits<double>::infinity()}}),
              HasSubstr("table.position_ids[0].doubles[1]: got -inf, want "));
  EXPECT_THAT(refusal(plain, {{0x1p-150}}), HasSubstr("got 7.00649e-46"));
  EXPECT_THAT(refusal("sinusoidal {dim: 4 axes {offset: 0.1}}", {{1000.5}}),
              HasSubstr("p + 0.1 (the offset) is 0 or k 2^e"));
  EXPECT_THAT(refusal("sinusoidal {dim: 4 axes {} axes {}}", {{0.5}, {1, 2}}),
              HasSubstr("table.position_ids[1]: got 2 positions, want 1"));
  EXPECT_EQ(refusal("rotary {head_dim: 4 decay {}}", {{3, 0.5}}),
            "table.position_ids[0].doubles[1]: got 0.5, want an integer in "
            "[-2^40, 2^40]: rotary has no numbers at fractional positions here; "
            "only sinusoidal tables, and rotary tables with angle EXACT and no "
            "decay, have them");
  v1::TensorSpec both = AtReals(Parse<v1::TensorSpec>(plain), {{0.5}});
  both.mutable_table()->mutable_position_ids(0)->add_positions(1);
  EXPECT_THAT(MakePlan(both).status().message(),
              HasSubstr("table.position_ids[0].doubles: got 1 numbers, want "
                        "none: positions is set"));
  v1::TensorSpec pairs = Alibi(v1::ALIBI_VARIANT_SYMMETRIC);
  pairs.mutable_pair()->set_key_length(3);
  pairs.mutable_pair()->mutable_query_positions()->add_doubles(0.5);
  EXPECT_THAT(MakePlan(pairs).status().message(),
              HasSubstr("pair.query_positions.doubles[0]: got 0.5, want an "
                        "integer in [-2^40, 2^40]: alibi has no numbers"));
}

TEST_F(EngineTest, WindowEqualsSliceOfWhole) {
  for (const v1::TensorSpec& spec : PairSpecs()) {
    const int64_t queries = spec.pair().query_length();
    const int64_t keys = spec.pair().key_length();
    const std::vector<double> whole = Numbers(Dense(spec));
    v1::TensorSpec window = Dense(spec);
    const Range q = {queries / 2, queries};
    const Range k = {keys / 3, keys - 1};
    const Range h = {1, 4};
    v1::PairExtent& pair = *window.mutable_pair();
    *pair.mutable_queries() = RangeOf(q.begin, q.end);
    *pair.mutable_keys() = RangeOf(k.begin, k.end);
    *pair.mutable_heads() = RangeOf(h.begin, h.end);
    std::vector<double> slice;
    for (int64_t x = h.begin; x < h.end; ++x) {
      for (int64_t i = q.begin; i < q.end; ++i) {
        for (int64_t j = k.begin; j < k.end; ++j) {
          slice.push_back(whole[(x * queries + i) * keys + j]);
        }
      }
    }
    EXPECT_EQ(Numbers(window), slice);
    EXPECT_EQ(Expand(window, h.size(), q.size(), k.size()), slice);
  }
}

TEST_F(EngineTest, ListsEqualSinglePositions) {
  const std::vector<int64_t> queries = {3, 3, -2, 1000000000000, 0};
  const std::vector<int64_t> keys = {7, 0, 8, 9, -5, 999999999990};
  for (const v1::TensorSpec& encoding : {RandomT5(true), Alibi(v1::ALIBI_VARIANT_SYMMETRIC),
                                         Alibi(v1::ALIBI_VARIANT_KEY_FROM_START)}) {
    const v1::TensorSpec dense = Dense(encoding);
    const std::vector<double> numbers = Numbers(AtPairs(dense, queries, keys));
    for (size_t i = 0; i < queries.size(); ++i) {
      for (size_t j = 0; j < keys.size(); ++j) {
        const std::vector<double> single = Numbers(AtPairs(dense, {queries[i]}, {keys[j]}));
        for (int64_t h = 0; h < 6; ++h) {
          ASSERT_EQ(numbers[(h * queries.size() + i) * keys.size() + j], single[h]);
        }
      }
    }
  }
}

TEST_F(EngineTest, ConsecutiveListEqualsRange) {
  const v1::TensorSpec listed = AtPairs(RandomT5(true), {4, 5, 6}, {2, 3, 4, 5});
  v1::TensorSpec ranged = OverPairs(RandomT5(true), 3, 6, 4);
  *ranged.mutable_pair()->mutable_keys() = RangeOf(2, 6);
  EXPECT_EQ(Plan(listed)->fingerprint(), Plan(ranged)->fingerprint());
  EXPECT_EQ(Plan(listed)->form(), v1::FORM_TOEPLITZ);
  EXPECT_EQ(Whole(listed), Whole(ranged));
}

TEST_F(EngineTest, TablesBySliceListAndOffsetMatchWhole) {
  for (const int dim : {2, 7, 64}) {
    const v1::TensorSpec spec = Sinusoidal(dim);
    const std::string whole = Whole(OverPositions(spec, 0, 5000));
    const size_t row = size_t{4} * dim;
    EXPECT_EQ(Whole(OverPositions(spec, 1234, 4321)),
              whole.substr(1234 * row, (4321 - 1234) * row));
    std::string picked;
    const std::vector<int64_t> list = {17, 4999, 0, 17, 18, 19, 256};
    for (int64_t p : list) picked += whole.substr(p * row, row);
    EXPECT_EQ(Whole(AtPositions(spec, {list})), picked);
  }
}

TEST_F(EngineTest, AnyReadEqualsSliceOfWhole) {
  for (const v1::TensorSpec& spec : PairSpecs()) {
    ExpectSliceable(spec);
    ExpectSliceable(Dense(spec));
  }
  ExpectSliceable(OverPositions(Sinusoidal(33), 5, 900));
  ExpectSliceable(AtPositions(Sinusoidal(33), {{9, 1, 2, 3, 700, 4}}));
}

TEST_F(EngineTest, MasksReplaceOnlyHiddenPairs) {
  for (const v1::TensorSpec& spec : PairSpecs()) {
    const v1::PairExtent& pair = spec.pair();
    const std::vector<double> plain = Numbers(Dense(spec));
    for (const auto& [text, fill] :
         {std::pair("causal: true", -kInfinity), std::pair("window_left: 2", -kInfinity),
          std::pair("window_right: 3", -kInfinity),
          std::pair("causal: true window_left: 1", -kInfinity),
          std::pair("window_left: 0 window_right: 0 fill_value: -7.5", -7.5),
          std::pair("causal: true fill_lowest: true",
                    double{std::numeric_limits<float>::lowest()})}) {
      const auto mask = Parse<v1::Mask>(text);
      const std::vector<double> masked = Numbers(Masked(Dense(spec), text));
      for (int64_t at = 0; at < std::ssize(plain); ++at) {
        const int64_t j = at % pair.key_length();
        const int64_t i = at / pair.key_length() % pair.query_length() + pair.query_offset();
        ASSERT_EQ(masked[at], Hides(mask, i, j) ? fill : plain[at])
            << text << ": " << i << " " << j;
      }
    }
  }
}

// The bits of a fill, including its sign, in every type.
TEST_F(EngineTest, FillKeepsItsSign) {
  for (const char* type : {"F64", "F32", "F16", "BF16"}) {
    for (const char* form : {"TOEPLITZ", "DENSE"}) {
      const std::vector<double> numbers =
          Numbers(WithOutput(OverPairs(Alibi(v1::ALIBI_VARIANT_SYMMETRIC), 1, 2),
                             absl::StrCat("data_type: DATA_TYPE_", type, " form: FORM_", form,
                                          " mask {causal: true fill_value: -0}")));
      EXPECT_EQ(numbers[1], 0);
      EXPECT_TRUE(std::signbit(numbers[1]));
    }
  }
}

// Sets each bound of a mask to the tightest value that hides nothing, and then one position
// tighter.
TEST_F(EngineTest, MaskThatHidesNothingIsDropped) {
  const auto window = [](int64_t left, int64_t right) {
    return absl::StrCat("window_left: ", left, " window_right: ", right);
  };
  const v1::TensorSpec t5 = RandomT5(true);
  for (const auto& [none, first, last] :
       {std::tuple(OverPairs(t5, 7, 7), -6, 6), std::tuple(OverPairs(t5, 5, 9, 4), -8, 4),
        std::tuple(OverPairs(t5, 3, 2, -1), -1, 2),
        std::tuple(AtPairs(t5, {7, 3, 4}, {5, -2, 7}), -9, 4)}) {
    const std::string plain = Plan(none)->fingerprint();
    for (const std::string& mask : {window(-first, 100), window(100, last), window(100, 100)}) {
      const PlanPtr plan = Plan(Masked(none, mask));
      EXPECT_EQ(plan->fingerprint(), plain);
      EXPECT_FALSE(plan->resolved_spec().output().has_mask());
      EXPECT_EQ(Whole(Masked(none, mask)), Whole(none));
    }
    for (const std::string& mask : {window(-first - 1, 100), window(100, last - 1)}) {
      EXPECT_NE(Plan(Masked(none, mask))->fingerprint(), plain);
      EXPECT_NE(Whole(Masked(none, mask)), Whole(none));
    }
    const PlanPtr both = Plan(Masked(none, "causal: true window_left: 100"));
    EXPECT_EQ(both->fingerprint(), Plan(Masked(none, "causal: true"))->fingerprint());
    EXPECT_FALSE(both->resolved_spec().output().mask().has_window_left());
  }
}

// A decoder's newest token sees every key, so its row needs no mask.
TEST_F(EngineTest, DecoderStepCanBeMaskedInAnyForm) {
  for (const auto variant : {v1::ALIBI_VARIANT_KEY_FROM_START, v1::ALIBI_VARIANT_KEY_FROM_END}) {
    v1::TensorSpec step = OverPairs(Alibi(variant), 7, 7);
    *step.mutable_pair()->mutable_queries() = RangeOf(6, 7);
    v1::TensorSpec causal = Masked(step, "causal: true");
    EXPECT_EQ(Plan(causal)->fingerprint(), Plan(step)->fingerprint());
    EXPECT_EQ(Plan(causal)->form(), v1::FORM_KEY_ROW);
    EXPECT_EQ(Whole(causal), Whole(step));
    *causal.mutable_pair()->mutable_queries() = RangeOf(5, 7);
    EXPECT_THAT(MakePlan(causal), IsInvalidWith("output.mask: got a mask with form KEY_ROW, "
                                                "want form DENSE"));
  }
}

TEST_F(EngineTest, ReadsInOneStepUnlessRowsOverlap) {
  const v1::TensorSpec t5 = RandomT5(true);
  for (const auto& [spec, at_once] : {std::pair(OverPairs(t5, 4096, 4096), true),
                                      std::pair(OverPositions(Sinusoidal(96), 0, 2000), true),
                                      std::pair(Dense(OverPairs(t5, 40, 40)), true),
                                      std::pair(Dense(OverPairs(t5, 40, 1500)), false),
                                      std::pair(Dense(OverPairs(t5, 400, 400)), false)}) {
    EXPECT_EQ(Get(Plan(spec))->IsReadAtOnce(), at_once) << spec.DebugString();
  }
}

class TinyBudget : public EngineTest {
 protected:
  // Has room for the state of one sinusoid and a chunk, but not for eight of the bands below.
  TinyBudget() : EngineTest(EngineOptions{.memory_budget_bytes = 1250000}) {}
};

TEST_F(TinyBudget, LargePayloadIsComputedWhileRead) {
  const v1::TensorSpec t5 = OverPairs(RandomT5(true), 40, 15000);
  const v1::TensorSpec specs[] = {OverPositions(Sinusoidal(96), -7, 993), Dense(t5),
                                  Masked(t5, "causal: true window_left: 7000"),
                                  OverPairs(Alibi(v1::ALIBI_VARIANT_SYMMETRIC), 40, 15000, 3),
                                  OverPairs(Alibi(v1::ALIBI_VARIANT_KEY_FROM_END), 40, 15000, 3)};
  EngineHarness roomy;
  for (const v1::TensorSpec& spec : specs) {
    const PlanPtr plan = Plan(spec);
    const PayloadPtr payload = Get(plan);
    const std::string kept = roomy.Whole(spec);
    for (int64_t at = 0; at < plan->total_bytes(); at += 10001) {
      const int64_t size = std::min<int64_t>(10001, plan->total_bytes() - at);
      ASSERT_EQ(Bytes(Read(*payload, at, size)), kept.substr(at, size));
    }
  }
  EXPECT_EQ(computed(), 0);
  EXPECT_EQ(budget().used(), 0);
}

TEST_F(TinyBudget, ChunksCountAgainstTheBudget) {
  const PlanPtr plan = Plan(OverPositions(Sinusoidal(96), 0, 4000));
  const PayloadPtr payload = Get(plan);
  const absl::StatusOr<Chunk> held = Read(*payload, 0, 400000);
  ASSERT_THAT(held, IsOk());
  EXPECT_THAT(Read(*payload, 400000, 400000),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no room")));
}

TEST_F(TinyBudget, WorkingMemoryCountsUntilReleased) {
  const PlanPtr plan = Plan(OverPositions(Sinusoidal(96), 0, 4000));
  {
    const PayloadPtr payload = Get(plan);
    // Rotations by up to 256 positions, with 48 pairs of four doubles each.
    EXPECT_GE(budget().used(), 256 * 48 * 32);
    EXPECT_THAT(TryGet(plan), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no room")));
  }
  EXPECT_EQ(budget().used(), 0);
}

TEST_F(EngineTest, OneComputationServesLengthsWindowsAndOffsets) {
  const v1::TensorSpec t5 = RandomT5(true);
  v1::TensorSpec window = OverPairs(t5, 1000, 1000);
  Whole(window);
  EXPECT_EQ(computed(), 1);
  Whole(OverPairs(t5, 10, 10));
  Whole(Dense(OverPairs(t5, 512, 700, 88)));
  *window.mutable_pair()->mutable_queries() = RangeOf(999, 1000);
  *window.mutable_pair()->mutable_heads() = RangeOf(2, 3);
  Whole(window);
  EXPECT_EQ(computed(), 1);
  Whole(WithOutput(OverPairs(t5, 1000, 1000), "data_type: DATA_TYPE_BF16"));
  EXPECT_EQ(computed(), 2);
}

// Also covers masks that hide nothing in the window.
TEST_F(EngineTest, OneComputationServesAllWindowsOfMask) {
  v1::TensorSpec spec =
      Masked(OverPairs(RandomT5(true), 1000, 1000), "causal: true window_left: 700");
  Whole(spec);
  for (const int64_t query : {999, 600, 0}) {
    *spec.mutable_pair()->mutable_queries() = RangeOf(query, query + 1);
    *spec.mutable_pair()->mutable_keys() = RangeOf(0, query + 1);
    Whole(spec);
  }
  EXPECT_EQ(computed(), 1);
}

TEST_F(EngineTest, FingerprintsFollowTheBytes) {
  const v1::TensorSpec t5 = RandomT5(true);
  const auto fingerprint = [&](const std::string& rest) {
    v1::TensorSpec spec = OverPairs(t5, 8, 8);
    spec.MergeFrom(Parse<v1::TensorSpec>(rest));
    return Plan(spec)->fingerprint();
  };
  const std::string plain = fingerprint("");
  EXPECT_EQ(plain.size(), 64);
  EXPECT_EQ(plain, fingerprint("pair {alignment: ALIGNMENT_START}"));
  EXPECT_EQ(plain, fingerprint("output {form: FORM_TOEPLITZ mask {} "
                               "data_type: DATA_TYPE_F32}"));
  std::vector<std::string> all = {plain};
  for (const char* rest :
       {"output {data_type: DATA_TYPE_F16}", "output {form: FORM_DENSE}", "output {scale: 2}",
        "output {mask {causal: true}}", "output {mask {causal: true fill_value: -1}}",
        "output {mask {causal: true fill_value: 0}}", "output {mask {causal: true fill_value: -0}}",
        "pair {heads {begin: 0 end: 5}}", "t5 {bucket_rule: BUCKET_RULE_FLOAT32_LOG}",
        "output {values: VALUES_BUCKETS}"}) {
    all.push_back(fingerprint(rest));
  }
  ExpectAllDifferent(all);
}

TEST_F(EngineTest, EncodingFingerprintsIgnoreWindowsAndTypes) {
  const PlanPtr a = Plan(OverPairs(RandomT5(true), 8, 8));
  const PlanPtr b = Plan(WithOutput(OverPairs(RandomT5(true), 100, 50, 3),
                                    "data_type: DATA_TYPE_BF16 mask {causal: true}"));
  EXPECT_EQ(a->encoding_fingerprint(), b->encoding_fingerprint());
  const PlanPtr c = Plan(OverPairs(RandomT5(false), 8, 8));
  EXPECT_NE(a->encoding_fingerprint(), c->encoding_fingerprint());
}

TEST_F(EngineTest, RejectsInvalidRequestsByField) {
  const std::string pair = "pair {query_length: 8 key_length: 8} ";
  const std::pair<std::string, const char*> kCases[] = {
      {"", "extent: not set, want pair"},
      {"table {positions {end: 4}}", "extent: got table, want pair"},
      {"pair {key_length: 8}", "pair.query_length: not set"},
      {"pair {query_length: 8}", "pair.key_length: not set"},
      {"pair {query_length: 8 key_length: 9}", "pair.alignment: not set"},
      {pair + "pair {queries {begin: 3 end: 3}}", "pair.queries: got [3, 3)"},
      {pair + "pair {keys {end: 9}}", "pair.keys: got [0, 9), want a nonempty range inside [0, 8)"},
      {pair + "pair {heads {begin: 4 end: 1}}", "pair.heads: got [4, 1)"},
      {pair + "pair {query_positions {positions: [1, 2]}}", "pair.query_length: got 8, want none"},
      {"pair {query_positions {positions: [1, 1099511627777]} "
       "key_positions {positions: 1}}",
       "pair.query_positions.positions[1]: got 1099511627777"},
      {pair + "output {form: FORM_TABLE}", "output.form: got TABLE, want TOEPLITZ or DENSE for t5"},
      {"pair {query_positions {positions: [1, 5]} "
       "key_positions {positions: 1}} output {form: FORM_TOEPLITZ}",
       "output.form: got TOEPLITZ, want DENSE for t5 at listed positions"},
      {pair + "output {values: VALUES_BUCKETS data_type: DATA_TYPE_F32}",
       "output.data_type: got F32, want I32"},
      {pair + "output {data_type: DATA_TYPE_I32}", "output.data_type: got I32, want F64"},
      {pair + "output {mask {causal: true fill_value: nan}}", "output.mask.fill_value: got NaN"},
      {pair + "output {mask {causal: true fill_lowest: false}}",
       "output.mask.fill_lowest: got false"},
      {pair + "output {data_type: DATA_TYPE_F16 "
              "mask {causal: true fill_value: -70000}}",
       "output.mask.fill_value: got -70000, want a number that F16 can hold"},
      {pair + "output {values: VALUES_BUCKETS mask {causal: true}}",
       "output.mask: got a mask, want none"},
      {"pair {query_length: 1099511627776 key_length: 1099511627776} "
       "output {form: FORM_DENSE}",
       "extent: got shape [6, 1099511627776, 1099511627776] of F32"},
  };
  for (const auto& [rest, message] : kCases) {
    v1::TensorSpec spec = RandomT5(true);
    ASSERT_TRUE(google::protobuf::TextFormat::MergeFromString(rest, &spec));
    EXPECT_THAT(MakePlan(spec), IsInvalidWith(message)) << rest;
  }
}

}  // namespace
}  // namespace attnbias::engine_test
