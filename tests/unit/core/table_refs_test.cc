// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "core/mount/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/fresh_folder.h"
#include "tests/unit/support/safetensors_writer.h"
#include "tests/unit/support/specs.h"
#include "tests/unit/support/status_matchers.h"

namespace attnbias::table_refs_test {
namespace {

using testing::StartsWith;

// Returns the table from a T5 spec, given its TableRef in text format.
absl::StatusOr<Table> Taken(const std::string& ref, const TableSet& mounted = TableSet()) {
  auto spec = Parse<v1::TensorSpec>("t5 { table { " + ref + " } }");
  const absl::StatusOr<Tables> tables = TakeTables(mounted, spec);
  if (!tables.ok()) return tables.status();
  EXPECT_EQ(spec.t5().table().layout(), v1::TABLE_LAYOUT_BUCKETS_HEADS);
  return *tables->Get(spec.t5().table());
}

TEST(TableRefs, TransposedLayoutYieldsTheSameDigest) {
  // [2 buckets, 1 head] and its transpose contain the same bytes.
  const std::string numbers = "data_type: DATA_TYPE_F16 data: '\\000\\074\\000\\100'";
  const auto straight = Taken("inline_table { shape: [2, 1] " + numbers + "}");
  ASSERT_THAT(straight, IsOk());
  EXPECT_EQ(straight->At(0, 0), 1);
  EXPECT_EQ(straight->At(1, 0), 2);
  const auto transposed =
      Taken("layout: TABLE_LAYOUT_HEADS_BUCKETS inline_table { shape: [1, 2] " + numbers + "}");
  ASSERT_THAT(transposed, IsOk());
  EXPECT_EQ(transposed->sha256(), straight->sha256());
}

TEST(TableRefs, RejectInlineTablesAboveTheLimit) {
  v1::TensorSpec spec;
  spec.mutable_t5()->mutable_table()->mutable_inline_table()->set_data(
      std::string(kMaxInlineTableBytes + 1, '\0'));
  EXPECT_THAT(TakeTables(TableSet(), spec),
              IsInvalid("t5.table.inline_table.data: got 2097153 bytes, want at "
                        "most 2097152 in a request; mount larger tables "
                        "(--tables)"));
}

TEST(TableRefs, NameTheFieldInErrors) {
  EXPECT_THAT(Taken(""), IsInvalid("t5.table: got no source"));
  EXPECT_THAT(Taken("inline_table { shape: [1, 1] }"),
              IsInvalid("t5.table.inline_table.data_type: not set"));
  EXPECT_THAT(Taken("inline_table { data_type: DATA_TYPE_F32 shape: 9 data: 'xxxx' }"),
              IsInvalid("t5.table.inline_table"));
  EXPECT_THAT(Taken("sha256: 'ABC'"), IsInvalid("t5.table.sha256: got 3 characters"));
  EXPECT_THAT(Taken("sha256: '" + std::string(64, 'a') + "'"),
              StatusIs(absl::StatusCode::kNotFound, StartsWith("t5.table.sha256: ")));
  auto layers = Parse<v1::TensorSpec>("mlp_bias { layers {} layers { weight { name: '' } } }");
  EXPECT_THAT(TakeTables(TableSet(), layers),
              StatusIs(absl::StatusCode::kNotFound, StartsWith("mlp_bias.layers[1].weight.")));
}

TEST(TableRefs, RejectLayoutInLogits) {
  auto spec = Parse<v1::LogitsSpec>("shaw_keys { table { layout: TABLE_LAYOUT_BUCKETS_HEADS } }");
  EXPECT_THAT(TakeTables(TableSet(), spec),
              IsInvalid("shaw_keys.table.layout: got a value, want none"));
}

TEST(TableRefs, FindMountedTablesByNameAndByDigest) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(
      WriteFile(FreshFolder() / "t.safetensors",
                SafetensorsBytes({{"w", {2, 3}, {1, 2, 3, 4, 5, 6}}, {"row", {3}, {1, 2, 3}}})));
  ASSERT_THAT(file, IsOk());
  TableSetBuilder builder(1000);
  ASSERT_THAT(builder.Add("enc", *file, *file->Find("w")), IsOk());
  ASSERT_THAT(builder.Add("row", *file, *file->Find("row")), IsOk());
  const TableSetPtr tables = *std::move(builder).Build();

  const auto straight = Taken("name: 'enc'", *tables);
  ASSERT_THAT(straight, IsOk());
  EXPECT_EQ(straight->At(1, 0), 4);
  const auto transposed = Taken("name: 'enc' layout: TABLE_LAYOUT_HEADS_BUCKETS", *tables);
  ASSERT_THAT(transposed, IsOk());
  EXPECT_EQ(transposed->At(0, 1), 4);
  // Resolved specs refer to the two tables this way.
  for (const Table& table : {*straight, *transposed}) {
    const auto again =
        Taken("sha256: '" + table.sha256() + "' layout: TABLE_LAYOUT_BUCKETS_HEADS", *tables);
    ASSERT_THAT(again, IsOk());
    EXPECT_EQ(again->shape(), table.shape());
    EXPECT_EQ(again->sha256(), table.sha256());
  }

  EXPECT_THAT(Taken("name: 'dec'", *tables),
              StatusIs(absl::StatusCode::kNotFound,
                       "t5.table.name: got 'dec', want the name of a mounted "
                       "table; ListTables lists them"));
  EXPECT_THAT(
      Taken("name: 'row'", *tables->Under({"e"})),
      StatusIs(absl::StatusCode::kPermissionDenied, StartsWith("t5.table.name: got 'row'")));
  EXPECT_THAT(Taken("name: 'row' layout: TABLE_LAYOUT_HEADS_BUCKETS", *tables),
              IsInvalid("t5.table: got layout HEADS_BUCKETS with shape [3]"));
}

}  // namespace
}  // namespace attnbias::table_refs_test
