// SPDX-License-Identifier: Apache-2.0
// Laws that hold for every answer: a dense matrix is its expanded diagonals, a
// window is a slice of the whole, a list is its positions one by one, a masked
// element is the fill and any other is untouched, and however the bytes are
// read they are the same.
#include "core/engine/engine.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/encoding/spec/alibi.h"
#include "core/encoding/spec/rotary.h"
#include "core/encoding/spec/sinusoidal.h"
#include "core/encoding/spec/t5.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/engine_harness.h"

namespace attnbias::engine_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

T5Spec RandomT5(int64_t heads, bool bidirectional) {
  return {.num_heads = heads,
          .bidirectional = bidirectional,
          .table = RandomTable({32, heads}, 7)};
}

AlibiSpec Alibi(AlibiVariant variant) {
  return {.num_heads = 6, .variant = variant};
}

class EngineTest : public ::testing::Test, protected EngineHarness {
 protected:
  using EngineHarness::EngineHarness;

  // dense[h, i, j] from an answer in compact form.
  std::vector<double> Expand(const TensorSpec& spec, int64_t heads,
                             int64_t queries, int64_t keys) {
    TensorSpec compact = spec;
    compact.output.form.reset();
    const std::vector<double> numbers = Numbers(compact);
    const bool toeplitz =
        static_cast<int64_t>(numbers.size()) == heads * (queries + keys - 1);
    std::vector<double> dense;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < queries; ++i) {
        for (int64_t j = 0; j < keys; ++j) {
          dense.push_back(
              toeplitz ? numbers[h * (queries + keys - 1) + j - i + queries - 1]
                       : numbers[h * keys + j]);
        }
      }
    }
    return dense;
  }
};

// Every structure this library has over pairs, small and past the length from
// which rows are slices.
std::vector<TensorSpec> PairSpecs() {
  std::vector<TensorSpec> specs;
  for (const auto& [queries, keys, offset] :
       {std::tuple(5, 9, 4), std::tuple(9, 5, -3), std::tuple(40, 1500, 0),
        std::tuple(1, 7, 6)}) {
    const PairExtent pair = PairOf(queries, keys, offset);
    specs.push_back({RandomT5(6, true), pair, {}});
    specs.push_back({RandomT5(6, false), pair, {}});
    for (AlibiVariant variant :
         {AlibiVariant::kSymmetric, AlibiVariant::kCausal,
          AlibiVariant::kKeyFromStart, AlibiVariant::kKeyFromEnd}) {
      specs.push_back({Alibi(variant), pair, {}});
    }
  }
  return specs;
}

TensorSpec Dense(TensorSpec spec) {
  spec.output.form = Form::kDense;
  return spec;
}

TEST_F(EngineTest, DenseIsTheExpandedCompactForm) {
  for (const TensorSpec& spec : PairSpecs()) {
    const auto& pair = std::get<PairExtent>(spec.extent);
    EXPECT_EQ(Numbers(Dense(spec)),
              Expand(spec, 6, pair.query_length, pair.key_length));
  }
}

TEST_F(EngineTest, PartsFollowOneAnother) {
  TensorSpec spec{RotarySpec{.head_dim = 6}, TableExtent{Range{3, 8}, {}}, {}};
  const PlanPtr plan = Plan(spec);
  ASSERT_EQ(plan->parts().size(), 2);
  EXPECT_EQ(plan->parts()[0].name, "cos");
  EXPECT_EQ(plan->parts()[1].name, "sin");
  EXPECT_THAT(plan->parts()[1].shape, ElementsAre(5, 6));
  EXPECT_EQ(plan->parts()[1].offset, 5 * 6 * 4);
  EXPECT_EQ(plan->total_bytes(), 2 * 5 * 6 * 4);
  const std::vector<double> numbers = Numbers(spec);
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t column = 0; column < 6; ++column) {
      const double angle =
          static_cast<double>(3 + row) *
          std::pow(10000, -static_cast<double>(column % 3) / 3);
      EXPECT_NEAR(numbers[row * 6 + column], std::cos(angle), 1e-7);
      EXPECT_NEAR(numbers[30 + row * 6 + column], std::sin(angle), 1e-7);
    }
  }
  // The same from a band, from a list, and from a list too sparse for a band.
  for (const std::vector<int64_t>& list :
       {std::vector<int64_t>{7, 3, 5}, std::vector<int64_t>{3, 1 << 30}}) {
    const std::vector<double> listed =
        Numbers({RotarySpec{.head_dim = 6}, TableExtent{{}, {list}}, {}});
    const auto first = static_cast<size_t>(6 * (list[0] - 3));
    for (size_t column = 0; column < 6; ++column) {
      EXPECT_EQ(listed[column], numbers[first + column]);
      EXPECT_EQ(listed[list.size() * 6 + column], numbers[30 + first + column]);
    }
  }
}

// Every column is that of a table at its own axis' positions alone.
TEST_F(EngineTest, ColumnsTakeTheirOwnAxisPositions) {
  const std::vector<std::vector<int64_t>> lists = {
      {0, 1, 2, 3, 4}, {9, 9, 8, 8, 7}, {-5, 1 << 20, 3, 3, 0}};
  for (const MropeOrder order :
       {MropeOrder::kChunked, MropeOrder::kInterleaved, MropeOrder::kAxial}) {
    for (const RotaryLayout layout :
         {RotaryLayout::kHalf, RotaryLayout::kInterleaved,
          RotaryLayout::kCompact}) {
      const RotarySpec rotary{.head_dim = 16,
                              .layout = layout,
                              .mrope_section = {4, 2, 2},
                              .mrope_order = order};
      const PlanPtr plan = Plan({rotary, TableExtent{{}, lists}, {}});
      const std::vector<double> numbers =
          Numbers({rotary, TableExtent{{}, lists}, {}});
      const int64_t width = plan->encoding().width;
      for (const AxisColumns& run : plan->encoding().axis_columns) {
        const std::vector<double> alone =
            Numbers({rotary, TableExtent{{}, {3, lists[run.axis]}}, {}});
        ASSERT_EQ(alone.size(), numbers.size());
        for (int64_t row = 0; row < int64_t{2} * 5; ++row) {
          for (int64_t column = run.columns.begin; column < run.columns.end;
               ++column) {
            ASSERT_EQ(numbers[row * width + column],
                      alone[row * width + column]);
          }
        }
      }
    }
  }
}

TEST_F(EngineTest, EqualAxesAreOneAxis) {
  RotarySpec rotary{.head_dim = 128};
  const TableExtent list{{}, {{5, 0, 77}}};
  const std::vector<double> one_axis = Numbers({rotary, list, {}});
  rotary.mrope_section = {16, 24, 24};
  const TableExtent lists{{}, {3, {5, 0, 77}}};
  EXPECT_EQ(Numbers({rotary, lists, {}}), one_axis);
  const TensorSpec few{rotary, list, {}};
  EXPECT_THAT(MakePlan(few),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("table.position_ids: got 1 lists, want 3")));
  // The last column belongs to the first axis, but there are three.
  rotary.mrope_section = {24, 20, 20};
  rotary.mrope_order = MropeOrder::kInterleaved;
  rotary.layout = RotaryLayout::kCompact;
  EXPECT_THAT(MakePlan({rotary, lists, {}}), IsOk());
}

TEST_F(EngineTest, AWindowIsASliceOfTheWhole) {
  for (const TensorSpec& spec : PairSpecs()) {
    const auto& pair = std::get<PairExtent>(spec.extent);
    const int64_t queries = pair.query_length;
    const int64_t keys = pair.key_length;
    const std::vector<double> whole = Numbers(Dense(spec));
    TensorSpec window = Dense(spec);
    const Range q = {queries / 2, queries};
    const Range k = {keys / 3, keys - 1};
    const Range h = {1, 4};
    auto& extent = std::get<PairExtent>(window.extent);
    extent.queries = q;
    extent.keys = k;
    extent.heads = h;
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

TEST_F(EngineTest, ListsAreTheirPositionsOneByOne) {
  const std::vector<int64_t> queries = {3, 3, -2, 1000000000000, 0};
  const std::vector<int64_t> keys = {7, 0, 8, 9, -5, 999999999990};
  for (const EncodingSpec& encoding :
       {EncodingSpec(RandomT5(6, true)),
        EncodingSpec(Alibi(AlibiVariant::kSymmetric)),
        EncodingSpec(Alibi(AlibiVariant::kKeyFromStart))}) {
    TensorSpec spec{encoding, {}, {.form = Form::kDense}};
    PairExtent pair;
    pair.query_positions = queries;
    pair.key_positions = keys;
    spec.extent = pair;
    const std::vector<double> numbers = Numbers(spec);
    for (size_t i = 0; i < queries.size(); ++i) {
      for (size_t j = 0; j < keys.size(); ++j) {
        PairExtent one;
        one.query_positions = {queries[i]};
        one.key_positions = {keys[j]};
        spec.extent = one;
        const std::vector<double> single = Numbers(spec);
        for (int64_t h = 0; h < 6; ++h) {
          ASSERT_EQ(numbers[(h * queries.size() + i) * keys.size() + j],
                    single[h]);
        }
      }
    }
  }
}

TEST_F(EngineTest, AListOfConsecutivePositionsIsItsRange) {
  TensorSpec listed{RandomT5(6, true), {}, {}};
  PairExtent lists;
  lists.query_positions = {4, 5, 6};
  lists.key_positions = {2, 3, 4, 5};
  listed.extent = lists;
  TensorSpec ranged = listed;
  PairExtent ranges = PairOf(3, 6, 4);
  ranges.keys = {2, 6};
  ranged.extent = ranges;
  EXPECT_EQ(Plan(listed)->fingerprint(), Plan(ranged)->fingerprint());
  EXPECT_EQ(Plan(listed)->form(), Form::kToeplitz);
  EXPECT_EQ(Whole(listed), Whole(ranged));
}

TEST_F(EngineTest, TablesBySliceListAndOffsetAreTheWhole) {
  for (int64_t dim : {2, 7, 64}) {
    const SinusoidalSpec encoding{.dim = dim};
    const auto rows = [&](TableExtent extent) {
      return Whole({encoding, std::move(extent), {}});
    };
    const std::string whole = rows({.positions = Range{0, 5000}});
    const size_t row = dim * 4;
    EXPECT_EQ(rows({.positions = Range{1234, 4321}}),
              whole.substr(1234 * row, (4321 - 1234) * row));
    std::string picked;
    const std::vector<int64_t> list = {17, 4999, 0, 17, 18, 19, 256};
    for (int64_t p : list) picked += whole.substr(p * row, row);
    EXPECT_EQ(rows({.position_ids = {list}}), picked);
  }
}

TEST_F(EngineTest, AnyReadIsASliceOfTheWhole) {
  std::mt19937 random(11);
  std::vector<TensorSpec> specs = PairSpecs();
  specs.push_back(
      {SinusoidalSpec{.dim = 33}, TableExtent{.positions = Range{5, 900}}, {}});
  specs.push_back({SinusoidalSpec{.dim = 33},
                   TableExtent{.position_ids = {{9, 1, 2, 3, 700, 4}}},
                   {}});
  for (TensorSpec spec : specs) {
    for (bool dense : {false, true}) {
      if (dense && std::holds_alternative<TableExtent>(spec.extent)) continue;
      if (dense) spec.output.form = Form::kDense;
      const PlanPtr plan = Plan(spec);
      const PayloadPtr payload = Get(plan);
      const int64_t total = plan->total_bytes();
      const std::string whole = Bytes(Read(*payload, 0, total));
      for (int i = 0; i < 40; ++i) {
        const int64_t offset =
            std::uniform_int_distribution<int64_t>(0, total - 1)(random);
        const int64_t size =
            std::uniform_int_distribution<int64_t>(1, total - offset)(random);
        ASSERT_EQ(Bytes(Read(*payload, offset, size)),
                  whole.substr(offset, size));
      }
    }
  }
}

TEST_F(EngineTest, MasksReplaceWhatTheyHideAndNothingElse) {
  for (TensorSpec spec : PairSpecs()) {
    const auto& pair = std::get<PairExtent>(spec.extent);
    spec = Dense(spec);
    const std::vector<double> plain = Numbers(spec);
    for (const Mask& mask :
         {Mask{.causal = true}, Mask{.window_left = 2}, Mask{.window_right = 3},
          Mask{.causal = true, .window_left = 1},
          Mask{.window_left = 0, .window_right = 0, .fill = -7.5},
          Mask{.causal = true, .fill = Lowest()}}) {
      spec.output.mask = mask;
      const std::vector<double> masked = Numbers(spec);
      double fill = -kInfinity;
      if (std::holds_alternative<double>(mask.fill)) fill = -7.5;
      if (std::holds_alternative<Lowest>(mask.fill)) {
        fill = std::numeric_limits<float>::lowest();
      }
      for (int64_t at = 0; at < std::ssize(plain); ++at) {
        const int64_t j = at % pair.key_length;
        const int64_t i =
            at / pair.key_length % pair.query_length + *pair.query_offset;
        const bool hidden = (mask.causal && j > i) ||
                            (mask.window_left && j < i - *mask.window_left) ||
                            (mask.window_right && j > i + *mask.window_right);
        ASSERT_EQ(masked[at], hidden ? fill : plain[at]) << i << " " << j;
      }
    }
  }
}

// The bits of a fill, its sign among them, in every type.
TEST_F(EngineTest, AFillKeepsItsSign) {
  for (const DataType type :
       {DataType::kF64, DataType::kF32, DataType::kF16, DataType::kBF16}) {
    for (const Form form : {Form::kToeplitz, Form::kDense}) {
      const std::vector<double> numbers =
          Numbers({Alibi(AlibiVariant::kSymmetric),
                   PairOf(1, 2),
                   {.data_type = type,
                    .form = form,
                    .mask = Mask{.causal = true, .fill = -0.0}}});
      EXPECT_EQ(numbers[1], 0);
      EXPECT_TRUE(std::signbit(numbers[1]));
    }
  }
}

// Each bound of a mask, as far as it hides nothing and one position nearer.
TEST_F(EngineTest, AMaskThatHidesNothingIsNone) {
  PairExtent lists;
  lists.query_positions = {7, 3, 4};
  lists.key_positions = {5, -2, 7};
  const auto with = [](TensorSpec spec, const Mask& mask) {
    spec.output.mask = mask;
    return spec;
  };
  for (const auto& [extent, first, last] :
       {std::tuple(PairOf(7, 7), -6, 6), std::tuple(PairOf(5, 9, 4), -8, 4),
        std::tuple(PairOf(3, 2, -1), -1, 2), std::tuple(lists, -9, 4)}) {
    const TensorSpec none{RandomT5(6, true), extent, {}};
    const std::string plain = Plan(none)->fingerprint();
    for (const Mask& mask :
         {Mask{.window_left = -first}, Mask{.window_right = last},
          Mask{.window_left = 100, .window_right = 100}}) {
      const PlanPtr plan = Plan(with(none, mask));
      EXPECT_EQ(plan->fingerprint(), plain);
      EXPECT_FALSE(plan->resolved_spec().output.mask.has_value());
      EXPECT_EQ(Whole(with(none, mask)), Whole(none));
    }
    for (const Mask& mask :
         {Mask{.window_left = -first - 1}, Mask{.window_right = last - 1}}) {
      EXPECT_NE(Plan(with(none, mask))->fingerprint(), plain);
      EXPECT_NE(Whole(with(none, mask)), Whole(none));
    }
    const Mask causal{.causal = true};
    const PlanPtr both =
        Plan(with(none, Mask{.causal = true, .window_left = 100}));
    EXPECT_EQ(both->fingerprint(), Plan(with(none, causal))->fingerprint());
    EXPECT_EQ(both->resolved_spec().output.mask->window_left, std::nullopt);
  }
}

// A decoder's newest token sees every key, so its row needs no mask.
TEST_F(EngineTest, ADecodersStepMayBeMaskedInAnyForm) {
  for (const AlibiVariant variant :
       {AlibiVariant::kKeyFromStart, AlibiVariant::kKeyFromEnd}) {
    TensorSpec step{Alibi(variant), PairOf(7, 7), {}};
    auto& pair = std::get<PairExtent>(step.extent);
    pair.queries = {6, 7};
    TensorSpec causal = step;
    causal.output.mask = Mask{.causal = true};
    EXPECT_EQ(Plan(causal)->fingerprint(), Plan(step)->fingerprint());
    EXPECT_EQ(Plan(causal)->form(), Form::kKeyRow);
    EXPECT_EQ(Whole(causal), Whole(step));
    std::get<PairExtent>(causal.extent).queries = {5, 7};
    EXPECT_THAT(MakePlan(causal),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("output.mask: got a mask with form KEY_ROW, "
                                   "want form DENSE")));
  }
}

TEST_F(EngineTest, FullyMaskedRowsAreThoseWithoutAVisibleKey) {
  const std::vector<int64_t> listed_keys = {9, 2, 3, 30};
  for (bool list_queries : {false, true}) {
    for (bool list_keys : {false, true}) {
      for (const Mask& mask :
           {Mask{.causal = true}, Mask{.causal = true, .window_left = 1},
            Mask{.window_left = 3, .window_right = 2}}) {
        PairExtent pair;
        std::vector<int64_t> queries(40);
        std::iota(queries.begin(), queries.end(), -3);
        if (list_queries) {
          std::shuffle(queries.begin(), queries.end(), std::mt19937(3));
          pair.query_positions = queries;
        } else {
          pair.query_length = 40;
          pair.query_offset = -3;
        }
        std::vector<int64_t> keys = {0, 1, 2, 3, 4};
        if (list_keys) {
          keys = listed_keys;
          pair.key_positions = keys;
        } else {
          pair.key_length = 5;
        }
        const PlanPtr plan = Plan({Alibi(AlibiVariant::kSymmetric),
                                   pair,
                                   {.form = Form::kDense, .mask = mask}});
        std::vector<int64_t> expected;
        for (size_t i = 0; i < queries.size(); ++i) {
          bool seen = false;
          for (int64_t key : keys) {
            seen =
                seen ||
                !((mask.causal && key > queries[i]) ||
                  (mask.window_left && key < queries[i] - *mask.window_left) ||
                  (mask.window_right && key > queries[i] + *mask.window_right));
          }
          if (!seen) expected.push_back(static_cast<int64_t>(i));
        }
        std::vector<int64_t> found;
        for (Range range : plan->fully_masked_rows()) {
          for (int64_t i = range.begin; i < range.end; ++i) found.push_back(i);
        }
        EXPECT_EQ(found, expected);
      }
    }
  }
}

TEST_F(EngineTest, BucketsHaveNoHeadAxis) {
  const TensorSpec spec{T5Spec{.bidirectional = true},
                        PairOf(3, 3, 0),
                        {.values = Values::kBuckets}};
  EXPECT_THAT(Numbers(spec), ElementsAre(2, 1, 0, 17, 18));
  EXPECT_THAT(Plan(spec)->parts()[0].shape, ElementsAre(5));
  EXPECT_THAT(Plan(Dense(spec))->parts()[0].shape, ElementsAre(3, 3));
  EXPECT_THAT(Numbers(Dense(spec)), ElementsAre(0, 17, 18, 1, 0, 17, 2, 1, 0));
}

TEST_F(EngineTest, EndAlignmentMeetsTheLastKey) {
  PairExtent pair;
  pair.query_length = 2;
  pair.key_length = 6;
  pair.alignment = Alignment::kEnd;
  const TensorSpec spec{T5Spec{.bidirectional = false},
                        pair,
                        {.form = Form::kDense, .values = Values::kBuckets}};
  EXPECT_THAT(Numbers(spec), ElementsAre(4, 3, 2, 1, 0, 0, 5, 4, 3, 2, 1, 0));
}

TEST_F(EngineTest, WhatLiesInTheBandIsReadAtOnceUnlessRowsOverlap) {
  struct Case {
    std::string name;
    TensorSpec spec;
    bool at_once;
  };
  const TableExtent table{.positions = Range{0, 2000}};
  const Case cases[] = {
      {"diagonals", {RandomT5(6, true), PairOf(4096, 4096), {}}, true},
      {"table", {SinusoidalSpec{.dim = 96}, table, {}}, true},
      {"small and dense", Dense({RandomT5(6, true), PairOf(40, 40), {}}), true},
      {"dense", Dense({RandomT5(6, true), PairOf(40, 1500), {}}), false},
      {"dense, short rows", Dense({RandomT5(6, true), PairOf(400, 400), {}}),
       false},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Get(Plan(c.spec))->IsReadAtOnce(), c.at_once) << c.name;
  }
}

class TinyBudget : public EngineTest {
 protected:
  // Room for what one sinusoid keeps and a chunk, not for eight of the bands
  // below.
  TinyBudget() : EngineTest(EngineOptions{.memory_budget_bytes = 2000000}) {}
};

TEST_F(TinyBudget, WhatIsTooLargeToKeepIsComputedWhileItIsRead) {
  std::vector<TensorSpec> specs = {
      {SinusoidalSpec{.dim = 96}, TableExtent{.positions = Range{-7, 993}}, {}},
      {RandomT5(6, true), PairOf(40, 15000, 0), {.form = Form::kDense}},
      {RandomT5(6, true),
       PairOf(40, 15000, 0),
       {.mask = Mask{.causal = true, .window_left = 7000}}}};
  for (AlibiVariant variant :
       {AlibiVariant::kSymmetric, AlibiVariant::kKeyFromEnd}) {
    specs.push_back({Alibi(variant), PairOf(40, 15000, 3), {}});
  }
  EngineHarness roomy;
  for (const TensorSpec& spec : specs) {
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
  const PlanPtr plan = Plan({SinusoidalSpec{.dim = 96},
                             TableExtent{.positions = Range{0, 4000}},
                             {}});
  const PayloadPtr payload = Get(plan);
  const absl::StatusOr<Chunk> held = Read(*payload, 0, 600000);
  ASSERT_THAT(held, IsOk());
  EXPECT_THAT(
      Read(*payload, 600000, 600000),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no room")));
}

TEST_F(TinyBudget, WhatComputingKeepsCountsForAsLongAsItIsKept) {
  const PlanPtr plan = Plan({SinusoidalSpec{.dim = 96},
                             TableExtent{.positions = Range{0, 4000}},
                             {}});
  {
    const PayloadPtr payload = Get(plan);
    // Rotations by 256 steps of at least two sizes, 48 pairs of four doubles.
    EXPECT_GE(budget().used(), 2 * 256 * 48 * 32);
    EXPECT_THAT(TryGet(plan), StatusIs(absl::StatusCode::kResourceExhausted,
                                       HasSubstr("no room")));
  }
  EXPECT_EQ(budget().used(), 0);
}

TEST_F(EngineTest, OneComputationServesLengthsWindowsAndOffsets) {
  const T5Spec t5 = RandomT5(6, true);
  Whole({t5, PairOf(1000, 1000, 0), {}});
  EXPECT_EQ(computed(), 1);
  Whole({t5, PairOf(10, 10, 0), {}});
  Whole({t5, PairOf(512, 700, 88), {.form = Form::kDense}});
  PairExtent window = PairOf(1000, 1000, 0);
  window.queries = {999, 1000};
  window.heads = {2, 3};
  Whole({t5, window, {}});
  EXPECT_EQ(computed(), 1);
  Whole({t5, PairOf(1000, 1000, 0), {.data_type = DataType::kBF16}});
  EXPECT_EQ(computed(), 2);
}

// Also where the mask hides nothing of the window.
TEST_F(EngineTest, OneComputationServesAllWindowsOfAMask) {
  TensorSpec spec{RandomT5(6, true),
                  PairOf(1000, 1000),
                  {.mask = Mask{.causal = true, .window_left = 700}}};
  Whole(spec);
  auto& pair = std::get<PairExtent>(spec.extent);
  for (const int64_t query : {999, 600, 0}) {
    pair.queries = {query, query + 1};
    pair.keys = {0, query + 1};
    Whole(spec);
  }
  EXPECT_EQ(computed(), 1);
}

TEST_F(EngineTest, FingerprintsFollowTheBytes) {
  const TensorSpec base{RandomT5(6, true), PairOf(8, 8, 0), {}};
  const auto fingerprint = [&](auto change) {
    TensorSpec spec = base;
    change(spec);
    return Plan(spec)->fingerprint();
  };
  const std::string plain = fingerprint([](TensorSpec&) {});
  EXPECT_EQ(plain.size(), 64);
  EXPECT_EQ(plain, fingerprint([](TensorSpec& s) {
              std::get<PairExtent>(s.extent).query_offset.reset();
            }));
  EXPECT_EQ(plain, fingerprint([](TensorSpec& s) {
              s.output.form = Form::kToeplitz;
              s.output.data_type = DataType::kF32;
              s.output.mask = Mask();
            }));
  std::vector<std::string> all = {plain};
  all.push_back(
      fingerprint([](TensorSpec& s) { s.output.data_type = DataType::kF16; }));
  all.push_back(
      fingerprint([](TensorSpec& s) { s.output.form = Form::kDense; }));
  all.push_back(fingerprint([](TensorSpec& s) { s.output.scale = 2; }));
  all.push_back(
      fingerprint([](TensorSpec& s) { s.output.mask = Mask{.causal = true}; }));
  const auto filled = [&](double fill) {
    return fingerprint([fill](TensorSpec& s) {
      s.output.mask = Mask{.causal = true, .fill = fill};
    });
  };
  for (const double fill : {-1.0, 0.0, -0.0}) all.push_back(filled(fill));
  all.push_back(fingerprint([](TensorSpec& s) {
    std::get<PairExtent>(s.extent).heads = {0, 5};
  }));
  all.push_back(fingerprint([](TensorSpec& s) {
    s.encoding.As<T5Spec>()->bucket_rule = BucketRule::kFloat32Log;
  }));
  all.push_back(
      fingerprint([](TensorSpec& s) { s.output.values = Values::kBuckets; }));
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
}

TEST_F(EngineTest, EncodingFingerprintsIgnoreWindowsAndTypes) {
  const T5Spec t5 = RandomT5(6, true);
  const PlanPtr a = Plan({t5, PairOf(8, 8, 0), {}});
  const PlanPtr b =
      Plan({t5,
            PairOf(100, 50, 3),
            {.data_type = DataType::kBF16, .mask = Mask{.causal = true}}});
  EXPECT_EQ(a->encoding_fingerprint(), b->encoding_fingerprint());
  const PlanPtr c = Plan({RandomT5(6, false), PairOf(8, 8, 0), {}});
  EXPECT_NE(a->encoding_fingerprint(), c->encoding_fingerprint());
}

TEST_F(EngineTest, ResolvedSpecsPlanToTheSameBytes) {
  for (TensorSpec spec : PairSpecs()) {
    spec.output.mask = Mask{.causal = true};
    spec.output.form = Form::kDense;
    std::get<PairExtent>(spec.extent).query_offset = 2;
    const PlanPtr plan = Plan(spec);
    EXPECT_EQ(Plan(plan->resolved_spec())->fingerprint(), plan->fingerprint());
  }
  PairExtent lists;
  lists.query_positions = {4, 5, 6};
  lists.key_positions = {9, 1};
  const PlanPtr plan = Plan({Alibi(AlibiVariant::kSymmetric), lists, {}});
  EXPECT_EQ(Plan(plan->resolved_spec())->fingerprint(), plan->fingerprint());
}

TEST_F(EngineTest, BadRequestsAreRefusedByField) {
  struct Case {
    const char* name;
    void (*change)(TensorSpec&);
    const char* message;
  };
  const auto pair = [](TensorSpec& s) -> PairExtent& {
    return std::get<PairExtent>(s.extent);
  };
  static const auto P = pair;
  const Case cases[] = {
      {"no extent", [](TensorSpec& s) { s.extent = std::monostate(); },
       "extent: not set, want pair"},
      {"other extent",
       [](TensorSpec& s) {
         s.extent = TableExtent{.positions = Range{0, 4}};
       },
       "extent: got table, want pair"},
      {"zero queries", [](TensorSpec& s) { P(s).query_length = 0; },
       "pair.query_length: not set"},
      {"negative keys", [](TensorSpec& s) { P(s).key_length = -4; },
       "pair.key_length: got -4"},
      {"huge", [](TensorSpec& s) { P(s).key_length = INT64_MAX; },
       "pair.key_length: got 9223372036854775807"},
      {"unaligned",
       [](TensorSpec& s) {
         P(s).query_offset.reset();
         P(s).key_length = 9;
       },
       "pair.alignment: not set"},
      {"offset", [](TensorSpec& s) { P(s).query_offset = INT64_MIN; },
       "pair.query_offset: got -9223372036854775808"},
      {"empty window",
       [](TensorSpec& s) {
         P(s).queries = {3, 3};
       },
       "pair.queries: got [3, 3)"},
      {"window past the end",
       [](TensorSpec& s) {
         P(s).keys = {0, 9};
       },
       "pair.keys: got [0, 9), want a range that is not empty inside [0, 8)"},
      {"reversed window",
       [](TensorSpec& s) {
         P(s).heads = {4, 1};
       },
       "pair.heads: got [4, 1)"},
      {"lists and lengths",
       [](TensorSpec& s) {
         P(s).query_positions = {1, 2};
       },
       "pair.query_positions: got query_length"},
      {"list past the bound",
       [](TensorSpec& s) {
         P(s) = PairExtent();
         P(s).query_positions = {1, (int64_t{1} << 40) + 1};
         P(s).key_positions = {1};
       },
       "pair.query_positions.positions[1]: got 1099511627777"},
      {"form", [](TensorSpec& s) { s.output.form = Form::kTable; },
       "output.form: got TABLE, want TOEPLITZ or DENSE for t5"},
      {"listed diagonals",
       [](TensorSpec& s) {
         P(s) = PairExtent();
         P(s).query_positions = {1, 5};
         P(s).key_positions = {1};
         s.output.form = Form::kToeplitz;
       },
       "output.form: got TOEPLITZ, want DENSE for t5 at listed positions"},
      {"indices as floats",
       [](TensorSpec& s) {
         s.output.values = Values::kBuckets;
         s.output.data_type = DataType::kF32;
       },
       "output.data_type: got F32, want I32"},
      {"bias as integers",
       [](TensorSpec& s) { s.output.data_type = DataType::kI32; },
       "output.data_type: got I32, want F64"},
      {"window", [](TensorSpec& s) { s.output.mask = Mask{.window_left = -1}; },
       "output.mask.window_left: got -1"},
      {"fill NaN",
       [](TensorSpec& s) { s.output.mask = Mask{.causal = true, .fill = NAN}; },
       "output.mask.fill_value: got NaN"},
      {"fill overflows",
       [](TensorSpec& s) {
         s.output.data_type = DataType::kF16;
         s.output.mask = Mask{.causal = true, .fill = -70000.0};
       },
       "output.mask.fill_value: got -70000, want a number that F16 can hold"},
      {"masked indices",
       [](TensorSpec& s) {
         s.output.values = Values::kBuckets;
         s.output.mask = Mask{.causal = true};
       },
       "output.mask: got a mask, want none"},
      {"too large",
       [](TensorSpec& s) {
         P(s).query_length = P(s).key_length = int64_t{1} << 40;
         s.output.form = Form::kDense;
       },
       "extent: got shape [6, 1099511627776, 1099511627776] of F32"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    TensorSpec spec{RandomT5(6, true), PairOf(8, 8, 0), {}};
    c.change(spec);
    EXPECT_THAT(MakePlan(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr(c.message)));
  }
}

}  // namespace
}  // namespace attnbias::engine_test
