// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "core/mount/registry.h"
#include "gmock/gmock.h"
#include "server/service/tensor_service.h"
#include "tests/unit/support/fresh_folder.h"
#include "tests/unit/support/safetensors_writer.h"
#include "tests/unit/support/status_matchers.h"

namespace attnbias::list_tables_test {
namespace {

using testing::ElementsAre;

class ListTablesTest : public testing::Test {
 protected:
  // Mounts the same tensor under each name.
  static TableSetPtr Mount(const std::vector<std::string>& names) {
    absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(WriteFile(
        FreshFolder() / "t.safetensors", SafetensorsBytes({{"w", {2, 1, 3}, {1, 2, 3, 4, 5, 6}}})));
    TableSetBuilder builder(1 << 20);
    for (const std::string& name : names) {
      EXPECT_THAT(builder.Add(name, *file, *file->Find("w")), IsOk());
    }
    return *std::move(builder).Build();
  }

  static v1::ListTablesResponse Page(const TableSet& tables, int size, const std::string& token) {
    v1::ListTablesRequest request;
    request.set_page_size(size);
    request.set_page_token(token);
    v1::ListTablesResponse response;
    EXPECT_THAT(ListTables(request, tables, &response), IsOk());
    return response;
  }

  static std::vector<std::string> Names(const v1::ListTablesResponse& page) {
    std::vector<std::string> names;
    for (const v1::TableInfo& info : page.tables()) names.push_back(info.name());
    return names;
  }
};

TEST_F(ListTablesTest, ReturnsConsecutivePages) {
  const TableSetPtr tables = Mount({"c", "a", "b", "d"});
  const v1::ListTablesResponse first = Page(*tables, 2, "");
  EXPECT_THAT(Names(first), ElementsAre("a", "b"));
  const v1::ListTablesResponse second = Page(*tables, 2, first.next_page_token());
  EXPECT_THAT(Names(second), ElementsAre("c", "d"));
  EXPECT_EQ(second.next_page_token(), "");
  EXPECT_EQ(Page(*tables, 4, "").next_page_token(), "");
  // A table mounted between two pages neither repeats nor hides others.
  EXPECT_THAT(Names(Page(*Mount({"aa", "c"}), 2, first.next_page_token())), ElementsAre("c"));
  EXPECT_THAT(Names(Page(TableSet(), 0, first.next_page_token())), ElementsAre());
}

TEST_F(ListTablesTest, EqualTablesKeepTheirOwnNames) {
  const std::filesystem::path folder = FreshFolder();
  WriteFile(folder / "config.json", R"({"model_type":"swinv2","num_heads":[1]})");
  // The networks of two blocks, which differ only in their outputs.
  std::vector<F32Tensor> tensors;
  for (const float block : {0.0F, 1.0F}) {
    const std::string mlp = absl::StrCat("encoder.layers.0.blocks.", block,
                                         ".attention.self."
                                         "continuous_position_bias_mlp.");
    tensors.push_back({mlp + "0.weight", {512, 2}, std::vector<float>(1024, 1)});
    tensors.push_back({mlp + "0.bias", {512}, std::vector<float>(512, 3)});
    tensors.push_back({mlp + "2.weight", {1, 512}, std::vector<float>(512, block)});
  }
  WriteFile(folder / "model.safetensors", SafetensorsBytes(tensors));
  TableSetBuilder builder(1 << 20);
  ASSERT_THAT(AddCheckpoint("m", folder, builder), IsOk());
  const v1::ListTablesResponse page = Page(**std::move(builder).Build(), 0, "");
  ASSERT_EQ(page.tables_size(), 6);
  for (const v1::TableInfo& info : page.tables()) {
    const std::string block = info.name().substr(0, info.name().find(".mlp"));
    const v1::MlpBias& spec = info.spec().mlp_bias();
    EXPECT_EQ(spec.layers(0).weight().name(), block + ".mlp.0.weight");
    EXPECT_EQ(spec.layers(0).bias().name(), block + ".mlp.0.bias");
    EXPECT_EQ(spec.layers(1).weight().name(), block + ".mlp.2.weight");
  }
}

}  // namespace
}  // namespace attnbias::list_tables_test
