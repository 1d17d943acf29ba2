// SPDX-License-Identifier: Apache-2.0
// A server's messages in the words of the command line.
#include "client/cli/words.h"

#include <gtest/gtest.h>

#include <utility>

namespace attnbias::words_test {
namespace {

TEST(InFlags, FieldsAreFlags) {
  for (const auto& [said, wanted] : {
           std::pair("spec.pair.key_length: got 0", "--keys: got 0"),
           std::pair("spec.pair.queries: got [2, 2)", "--queries: got [2, 2)"),
           std::pair("spec.grid.heads: got [0, 9)", "--heads: got [0, 9)"),
           std::pair("spec.pair.query_offset: got 3", "--query-offset: got 3"),
           std::pair(
               "spec.pair.alignment: not set, want START, END or a "
               "query_offset where query_length (4) and key_length (5) differ",
               "--align: not set, want start, end or --query-offset where "
               "--queries (4) and --keys (5) differ"),
           std::pair("spec.pair.key_positions.positions[7]: got 1",
                     "--key-position-ids[7]: got 1"),
           std::pair("spec.pair.query_positions: got query_length beside it",
                     "--query-position-ids: got --queries beside it"),
           std::pair("spec.table.positions: got [0, 0)",
                     "--positions: got [0, 0)"),
           std::pair("spec.table.position_ids[1].positions[2]: got 1",
                     "--position-ids[1][2]: got 1"),
           std::pair("spec.output.form: got TABLE, want KEY_ROW or DENSE",
                     "--form: got table, want key_row or dense"),
           std::pair("spec.output.data_type: got I32, want F64, F32",
                     "--dtype: got i32, want f64, f32"),
           std::pair("spec.output.mask: got a mask with form KEY_ROW, want "
                     "form DENSE",
                     "--causal, --window-left or --window-right: got a mask "
                     "with --form key_row, want --form dense"),
           std::pair("spec.output.data_type: got F32, want I32 with values "
                     "BUCKETS",
                     "--dtype: got f32, want i32 with --values buckets"),
           std::pair("spec.table: got both of positions and position_ids, "
                     "want one of them",
                     "--positions: got --position-ids beside it, want one of "
                     "them"),
           std::pair("spec.output.mask.window_left: got -1",
                     "--window-left: got -1"),
           std::pair("spec.output.mask.fill_value: got NaN", "--fill: got NaN"),
           std::pair("spec: got lists", "request: got lists"),
           std::pair("spec.extent: got shape [8]", "request: got shape [8]"),
       }) {
    EXPECT_EQ(InFlags(said), wanted);
  }
}

TEST(InFlags, FieldsOfAnEncodingKeepTheirNames) {
  for (const auto& [said, wanted] : {
           std::pair("spec.alibi.num_heads: got 0", "alibi.num_heads: got 0"),
           std::pair("spec.rotary.rope_type: got YARN, want DEFAULT",
                     "rotary.rope_type: got yarn, want default"),
           std::pair("spec.t5.table.inline_table.data: got 3 bytes",
                     "t5.table: got 3 bytes"),
           std::pair("spec.t5.table: got no source, want name, inline_table "
                     "or sha256",
                     "t5.table: not set, want @FILE.safetensors:TENSOR, "
                     "@FILE.npy, name:NAME or sha256:DIGEST"),
           std::pair(
               "spec.tupe.relative_table: got shape [8, 32], want [32 "
               "(num_buckets), 8 (num_heads)]; see the table's layout",
               "tupe.relative_table: got shape [8, 32], want [32 "
               "(num_buckets), 8 (num_heads)]; see relative_table_layout, "
               "buckets_heads or heads_buckets"),
           std::pair("spec.t5.table: not set, want a table of [8 buckets, 2 "
                     "heads], or values BUCKETS",
                     "t5.table: not set, want a table of [8 buckets, 2 heads], "
                     "or --values buckets"),
           std::pair("spec.t5.table.inline_table: got nan",
                     "t5.table: got nan"),
           std::pair("spec.t5.table.name: got 'x', want the name of a mounted "
                     "table; ListTables has them",
                     "t5.table: got 'x', want the name of a mounted table; "
                     "`attnbias tables` lists them"),
           std::pair("T5 IS NOT A VALUE", "T5 IS NOT A VALUE"),
           std::pair("spec.t5.table.name: got 'runs/spec.BIAS/YARN', want the "
                     "server's, F32 or 'spec.F32'",
                     "t5.table: got 'runs/spec.BIAS/YARN', want the server's, "
                     "f32 or 'spec.F32'"),
           std::pair("spec.output.form: got 'TABLE", "--form: got 'TABLE"),
       }) {
    EXPECT_EQ(InFlags(said), wanted);
  }
}

TEST(InFlags, ATooLargeMessageHearsOfTables) {
  EXPECT_EQ(InFlags("Received message larger than max (9437200 vs. 8388608)"),
            "too large a message; if it is the request, have the server mount "
            "its tables "
            "(--tables) (9437200 vs. 8388608)");
}

}  // namespace
}  // namespace attnbias::words_test
