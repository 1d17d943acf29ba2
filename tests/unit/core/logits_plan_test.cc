// SPDX-License-Identifier: Apache-2.0
// Requests for positional logits that are rejected.
#include <functional>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/core/logits_requests.h"
#include "tests/unit/support/status_matchers.h"

namespace attnbias::logits_plan_test {
namespace {

using Change = std::function<void(v1::LogitsSpec&)>;

// Returns a change to fields other than tables.
Change To(const char* fields) {
  return [fields](v1::LogitsSpec& spec) {
    EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(fields, &spec));
  };
}

// Returns a change that replaces the tokens with grid tokens and then sets more fields.
Change ToGrids(const char* fields) {
  return [fields](v1::LogitsSpec& spec) {
    spec = Grids({1, 3}, {1, 5}, {1, 9});
    To(fields)(spec);
  };
}

v1::TableRef Random(const std::vector<int64_t>& shape) {
  return RandomRef(DataType::kF32, shape, 1);
}

const std::pair<const char*, Change> kRefusals[] = {
    {"term: not set", [](auto& s) { s.clear_term(); }},
    {"head_dim: got 65536 for 65536 heads",
     To("num_heads: 65536 head_dim: 65536 sinusoidal_distances {"
        "sinusoidal {dim: 65536 columns: COLUMNS_INTERLEAVED}}")},
    {"key_length: got 1099511627776, want at most", To("key_length: 1099511627776")},
    {"alignment: not set", [](auto& s) { s.clear_origin(); }},
    {"data_type: got I32", To("data_type: DATA_TYPE_I32")},
    {"output_data_type: got I32", To("output_data_type: DATA_TYPE_I32")},
    {"scale: got 0", To("scale: 0")},
    {"fill_value: got NaN", To("fill_value: nan")},
    {"fill_lowest: got false", To("fill_lowest: false")},
    {"bias_alone: got true", To("bias_alone: true")},
    {"query_bias: got shape [5, 3], want [num_heads, head_dim] = [3, 5]",
     [](auto& s) {
       *s.mutable_query_bias() = Random({5, 3});
     }},
    {"shaw_keys.table: got shape [5, 5], want [left + right + 1, head_dim] = [6, 5]",
     To("shaw_keys {right: 3}")},
    {"fill: got a value",
     [](auto& s) {
       s.set_fill_value(0);
       *s.mutable_shaw_values() = Shaw(0, 0, Random({1, 5}));
     }},
    {"query_bias: got a table",
     [](auto& s) {
       *s.mutable_query_bias() = Random({3, 5});
       *s.mutable_shaw_values() = Shaw(0, 0, Random({1, 5}));
     }},
    {"sinusoidal_distances.sinusoidal.columns: not set",
     To("sinusoidal_distances {sinusoidal {dim: 5}}")},
    {"sinusoidal_distances.sinusoidal.dim: got 6, want head_dim (5)",
     To("sinusoidal_distances {sinusoidal {"
        "dim: 6 columns: COLUMNS_INTERLEAVED}}")},
    {"sinusoidal_distances.sinusoidal.axes: got 1 elements, want none",
     To("sinusoidal_distances {sinusoidal {"
        "dim: 5 columns: COLUMNS_INTERLEAVED axes {scale: 2}}}")},
    {"sinusoidal_distances.projection: got shape [14, 6], want [num_heads * "
     "head_dim, dim] = [15, 6]",
     [](auto& s) { *s.mutable_sinusoidal_distances() = TransformerXl(6, 14); }},
    {"query_offset: got 1099511627776, which makes distances",
     [](auto& s) {
       *s.mutable_sinusoidal_distances() = TransformerXl(6, 15);
       To("query_offset: 1099511627776 query_length: 4")(s);
     }},
    {"query_length: needs 2097151 vectors of 60 bytes, want at most",
     [](auto& s) {
       *s.mutable_sinusoidal_distances() = TransformerXl(6, 15);
       To("query_length: 1048576 key_length: 1048576")(s);
     }},
    {"decomposed_relative_positions.rel_pos_h: got shape [9, 4], want [rows_h, "
     "head_dim] = [9, 5]",
     [](auto& s) {
       s = Grids({1, 3}, {1, 5}, {1, 9});
       *s.mutable_decomposed_relative_positions()->mutable_rel_pos_h() = Random({9, 4});
     }},
    {"query_length: got 3, want 6, the number of tokens in a 2 x 3 grid",
     ToGrids("decomposed_relative_positions {query_height: 2}")},
    {"key_length: got 5, want 4, the number of tokens in a 1 x 4 grid",
     ToGrids("decomposed_relative_positions {key_width: 4}")},
    {"alignment: got END, want START: both grids start at token 0",
     ToGrids("alignment: ALIGNMENT_END")},
    {"query_offset: got 1, want 0", ToGrids("query_offset: 1")},
    {"direction: got LEFT_TO_RIGHT, want BIDIRECTIONAL",
     ToGrids("direction: DIRECTION_LEFT_TO_RIGHT")},
    {"absolute_keys.positions: got 4 rows, want at least key_length",
     [](auto& s) {
       *s.mutable_absolute_keys()->mutable_positions() = Random({4, 5});
     }},
    {"absolute_keys.positions: got rows of 4 numbers, want head_dim (5)",
     [](auto& s) {
       *s.mutable_absolute_keys()->mutable_positions() = Random({5, 4});
     }},
};

TEST(LogitsPlanTest, RejectsInvalidSpecsByField) {
  for (const auto& [message, change] : kRefusals) {
    v1::LogitsSpec spec = Base(3, 5);
    *spec.mutable_shaw_keys() = ShawKeys(2, 2, spec.head_dim());
    change(spec);
    EXPECT_THAT(PlanOf(spec, {.max_vector_bytes = 1 << 26}), IsInvalid(message));
  }
}

}  // namespace
}  // namespace attnbias::logits_plan_test
