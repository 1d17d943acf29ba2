// SPDX-License-Identifier: Apache-2.0
// What a request of positional logits must not be.
#include <functional>
#include <limits>
#include <utility>

#include "core/logits/plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/logits_requests.h"
#include "tests/testing/status_matchers.h"

namespace attnbias::logits_plan_test {
namespace {

using ::testing::StartsWith;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

using Change = std::function<void(LogitsSpec&)>;

ShawKeysSpec& KeysOf(LogitsSpec& spec) { return *spec.term.As<ShawKeysSpec>(); }

DecomposedRelativePositionsSpec& GridsOf(LogitsSpec& spec) {
  return *spec.term.As<DecomposedRelativePositionsSpec>();
}

const std::pair<const char*, Change> kRefusals[] = {
    {"term: not set", [](auto& s) { s.term = AnySpec(); }},
    {"num_heads: not set", [](auto& s) { s.num_heads = 0; }},
    {"head_dim: not set", [](auto& s) { s.head_dim = 0; }},
    {"head_dim: got 65536 for 65536 heads",
     [](auto& s) { s.head_dim = s.num_heads = 65536; }},
    {"query_length: not set", [](auto& s) { s.query_length = 0; }},
    {"key_length: got -1", [](auto& s) { s.key_length = -1; }},
    {"key_length: got 1099511627776, want at most",
     [](auto& s) { s.key_length = int64_t{1} << 40; }},
    {"alignment: not set", [](auto& s) { s.alignment.reset(); }},
    {"query_offset: got",
     [](auto& s) {
       s.alignment.reset();
       s.query_offset = (int64_t{1} << 40) + 1;
     }},
    {"direction: not set", [](auto& s) { s.direction.reset(); }},
    {"data_type: got I32", [](auto& s) { s.data_type = DataType::kI32; }},
    {"output_data_type: got I32",
     [](auto& s) { s.output_data_type = DataType::kI32; }},
    {"scale: got 0", [](auto& s) { s.scale = 0; }},
    {"scale: got nan", [](auto& s) { s.scale = kNaN; }},
    {"fill_value: got NaN", [](auto& s) { s.fill = kNaN; }},
    {"bias_alone: got true", [](auto& s) { s.bias_alone = true; }},
    {"query_bias: got shape [5, 3], want [num_heads, head_dim] = [3, 5]",
     [](auto& s) {
       s.query_bias = RandomTable(DataType::kF32, {5, 3}, 1);
     }},
    {"shaw_keys.left: not set", [](auto& s) { KeysOf(s).left.reset(); }},
    {"shaw_keys.right: got -1", [](auto& s) { KeysOf(s).right = -1; }},
    {"shaw_keys.table: got shape [5, 5], want [left + right + 1, head_dim] "
     "= [6, 5]",
     [](auto& s) { KeysOf(s).right = 3; }},
    {"shaw_keys.table: not set", [](auto& s) { KeysOf(s).table.reset(); }},
    {"fill: got one",
     [](auto& s) {
       s.fill = 0.0;
       s.term =
           Shaw<ShawValuesSpec>(0, 0, RandomTable(DataType::kF32, {1, 5}, 1));
     }},
    {"query_bias: got one",
     [](auto& s) {
       s.query_bias = RandomTable(DataType::kF32, {3, 5}, 1);
       s.term =
           Shaw<ShawValuesSpec>(0, 0, RandomTable(DataType::kF32, {1, 5}, 1));
     }},
    {"sinusoidal_distances.sinusoidal.dim: not set",
     [](auto& s) { s.term = SinusoidalDistancesSpec(); }},
    {"sinusoidal_distances.sinusoidal.dim: got 6, want head_dim (5)",
     [](auto& s) {
       SinusoidalDistancesSpec term;
       term.sinusoidal.dim = 6;
       s.term = term;
     }},
    {"sinusoidal_distances.projection: got shape [14, 6], want [num_heads * "
     "head_dim, dim] = [15, 6]",
     [](auto& s) { s.term = TransformerXl(6, 14); }},
    {"sinusoidal_distances.clamp_len: got 0",
     [](auto& s) {
       SinusoidalDistancesSpec term = TransformerXl(6, 15);
       term.clamp_len = 0;
       s.term = term;
     }},
    {"query_offset: got 1099511627776, which makes distances",
     [](auto& s) {
       s.alignment.reset();
       s.query_offset = int64_t{1} << 40;
       s.query_length = 4;
       s.term = TransformerXl(6, 15);
     }},
    {"query_length: makes 2097151 vectors of 60 bytes, want at most",
     [](auto& s) {
       s.query_length = s.key_length = 1 << 20;
       s.term = TransformerXl(6, 15);
     }},
    {"decomposed_relative_positions.rel_pos_w: not set, want a table",
     [](auto& s) {
       s = Grids({1, 3}, {1, 5}, {1, 9});
       GridsOf(s).rel_pos_w.reset();
     }},
    {"decomposed_relative_positions.rel_pos_h: got shape [9, 4], want rows of "
     "head_dim (5)",
     [](auto& s) {
       s = Grids({1, 3}, {1, 5}, {1, 9});
       GridsOf(s).rel_pos_h = RandomTable(DataType::kF32, {9, 4}, 1);
     }},
    {"decomposed_relative_positions.key_width: got 257, want an integer in [1, "
     "256]",
     [](auto& s) {
       s = Grids({1, 3}, {1, 257}, {1, 9});
     }},
    {"query_length: got 3, want 6, the tokens in a grid of 2 x 3",
     [](auto& s) {
       s = Grids({1, 3}, {1, 5}, {1, 9});
       GridsOf(s).query_height = 2;
     }},
    {"key_length: got 5, want 4, the tokens in a grid of 1 x 4",
     [](auto& s) {
       s = Grids({1, 3}, {1, 5}, {1, 9});
       GridsOf(s).key_width = 4;
     }},
    {"alignment: got END, want START: both grids are whole",
     [](auto& s) {
       s = Grids({1, 3}, {1, 5}, {1, 9});
       s.query_offset.reset();
       s.alignment = Alignment::kEnd;
     }},
    {"direction: got LEFT_TO_RIGHT, want BIDIRECTIONAL",
     [](auto& s) {
       s = Grids({1, 3}, {1, 5}, {1, 9});
       s.direction = Direction::kLeftToRight;
     }},
    {"absolute_keys.positions: not set",
     [](auto& s) { s.term = AbsoluteKeysSpec(); }},
    {"absolute_keys.positions: got shape [4, 5], want at least key_length",
     [](auto& s) {
       AbsoluteKeysSpec term;
       term.positions = RandomTable(DataType::kF32, {4, 5}, 1);
       s.term = term;
     }},
    {"absolute_keys.positions: got shape [5, 4], want rows of head_dim (5)",
     [](auto& s) {
       AbsoluteKeysSpec term;
       term.positions = RandomTable(DataType::kF32, {5, 4}, 1);
       s.term = term;
     }},
};

TEST(LogitsPlanTest, RefusesNamingTheField) {
  for (const auto& [message, change] : kRefusals) {
    LogitsSpec spec = Base(3, 5);
    spec.term = ShawKeys(2, 2, spec.head_dim);
    change(spec);
    EXPECT_THAT(
        LogitsPlan::Make(spec, {.max_vector_bytes = 1 << 26}),
        StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(message)));
  }
}

TEST(LogitsPlanTest, RowsMustFitTheMessage) {
  LogitsSpec spec = Base(10, 10);
  spec.term = ShawKeys(2, 2, spec.head_dim);
  const LogitsPlanPtr plan = *LogitsPlan::Make(spec, {});
  EXPECT_THAT(plan->CheckRows(9, 1, 3 * 5 * 4), IsOk());
  const auto refused = [](const char* message) {
    return StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(message));
  };
  EXPECT_THAT(plan->CheckRows(-1, 1, 60), refused("first_row: got -1"));
  EXPECT_THAT(plan->CheckRows(10, 1, 60), refused("first_row: got 10"));
  EXPECT_THAT(plan->CheckRows(0, 0, 0), refused("num_rows: not set"));
  EXPECT_THAT(plan->CheckRows(8, 3, 180), refused("num_rows: got 3"));
  EXPECT_THAT(plan->CheckRows(0, 1, 59),
              refused("data: got 59 bytes, want 60 for shape [3, 1, 5]"));
}

}  // namespace
}  // namespace attnbias::logits_plan_test
