// SPDX-License-Identifier: Apache-2.0
#include "core/mount/registry.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/unit/support/fresh_folder.h"
#include "tests/unit/support/safetensors_writer.h"
#include "tests/unit/support/status_matchers.h"

namespace attnbias::registry_test {
namespace {

class Registry : public testing::Test {
 protected:
  Registry()
      : file_(*SafetensorsFile::Open(WriteFile(
            FreshFolder() / "t.safetensors",
            SafetensorsBytes({{"two", {2, 3}, {1, 2, 3, 4, 5, 6}}, {"one", {4}, {1, 2, 3, 4}}})))) {
  }

  absl::Status Add(TableSetBuilder& builder, const std::string& name, const std::string& tensor) {
    return builder.Add(name, file_, *file_.Find(tensor)).status();
  }

  SafetensorsFile file_;
};

TEST_F(Registry, FindsByNameAndByDigestInEitherLayout) {
  TableSetBuilder builder(1000);
  ASSERT_THAT(Add(builder, "z", "two"), IsOk());
  ASSERT_THAT(Add(builder, "a/b:c", "one"), IsOk());
  const absl::StatusOr<TableSetPtr> set = std::move(builder).Build();
  ASSERT_THAT(set, IsOk());
  ASSERT_EQ((*set)->tables().size(), 2);
  EXPECT_EQ((*set)->tables()[0].name, "a/b:c");
  EXPECT_EQ((*set)->tables()[0].source, "t.safetensors:one");
  EXPECT_EQ((*set)->Find("b"), nullptr);
  EXPECT_EQ((*set)->Find(""), nullptr);
  const MountedTable* const z = (*set)->Find("z");
  ASSERT_NE(z, nullptr);
  EXPECT_EQ(z->table.At(1, 0), 4);

  const Table transposed = *z->table.In(TableLayout::kHeadsBuckets);
  for (const Table& table : {z->table, transposed}) {
    const std::optional<Table> found = (*set)->FindDigest(table.sha256());
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->shape(), table.shape());
    EXPECT_EQ(found->At(1), table.At(1));
  }
  EXPECT_FALSE((*set)->FindDigest(std::string(64, '0')).has_value());
}

TEST_F(Registry, SubsetHasTablesUnderItsPrefixes) {
  TableSetBuilder builder(1000);
  ASSERT_THAT(Add(builder, "ours/z", "two"), IsOk());
  ASSERT_THAT(Add(builder, "theirs/a", "one"), IsOk());
  const TableSetPtr all = *std::move(builder).Build();
  const TableSetPtr part = all->Under({"mine/", "ours/"});
  ASSERT_EQ(part->tables().size(), 1);
  EXPECT_EQ(part->tables()[0].name, "ours/z");
  EXPECT_NE(part->Find("ours/z"), nullptr);
  EXPECT_EQ(part->Find("theirs/a"), nullptr);
  const std::string theirs = all->Find("theirs/a")->table.sha256();
  EXPECT_TRUE(all->FindDigest(theirs));
  EXPECT_FALSE(part->FindDigest(theirs));
  EXPECT_TRUE(part->MayHave("mine/none"));
  EXPECT_FALSE(part->MayHave("theirs/a"));
  EXPECT_TRUE(all->MayHave("theirs/none"));
  EXPECT_FALSE(all->Under({})->MayHave("ours/z"));
}

TEST_F(Registry, SubsetsAreSharedUpToALimit) {
  const TableSetPtr all = *TableSetBuilder(1000).Build();
  const TableSetPtr part = all->Under({"a", "b"});
  EXPECT_EQ(all->Under({"a", "b"}), part);
  EXPECT_NE(all->Under({"a"}), part);
  for (int i = 0; i < 100; ++i) all->Under({std::to_string(i)});
  EXPECT_NE(all->Under({"a", "b"}), part);
}

TEST_F(Registry, NamesAreCheckedAndUnique) {
  TableSetBuilder builder(1000);
  for (const std::string& name : {std::string(), std::string(513, 'x'), std::string("a\nb"),
                                  std::string("mod\xe8le"), std::string("sha256:00")}) {
    EXPECT_THAT(Add(builder, name, "two"),
                IsInvalidWith("want a name of 1 to 512 printable ASCII"));
  }
  ASSERT_THAT(Add(builder, "x", "two"), IsOk());
  ASSERT_THAT(Add(builder, "x", "one"), IsOk());
  EXPECT_THAT(std::move(builder).Build(), IsInvalidWith("two tables have the name 'x', from "));
}

TEST_F(Registry, ReplacedSetOutlivesItsReaders) {
  TableRegistry registry;
  EXPECT_TRUE(registry.Get()->tables().empty());
  TableSetBuilder builder(1000);
  ASSERT_THAT(Add(builder, "x", "two"), IsOk());
  registry.Replace(*std::move(builder).Build());
  const TableSetPtr held = registry.Get();
  registry.Replace(std::make_shared<const TableSet>());
  EXPECT_TRUE(registry.Get()->tables().empty());
  EXPECT_EQ(held->Find("x")->table.At(5), 6);
}

}  // namespace
}  // namespace attnbias::registry_test
