// SPDX-License-Identifier: Apache-2.0
#include "server/run/table_mounts.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "server/observe/logging.h"
#include "tests/unit/support/fresh_folder.h"
#include "tests/unit/support/safetensors_writer.h"
#include "tests/unit/support/status_matchers.h"

namespace attnbias::table_mounts_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class TableMountsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { InitLogging({.level = "off", .access = "off"}); }
  TableMountsTest() : folder_(FreshFolder()) {}

  std::string Write(const std::string& file, float number, const std::string& tensor = "w") {
    return WriteFile(folder_ / file,
                     SafetensorsBytes({{tensor, {2, 1}, {number, 0}}, {"scalar", {}, {1}}}));
  }

  std::vector<std::string> Names() const {
    const TableSetPtr set = registry_.Get();
    std::vector<std::string> names;
    for (const MountedTable& table : set->tables()) names.push_back(table.name);
    return names;
  }

  double FirstOf(const std::string& name) const { return registry_.Get()->Find(name)->table.At(0); }

  absl::Status Load(const TableSources& sources) {
    return TableMounts(sources, 1000, &registry_).Load();
  }

  const std::filesystem::path folder_;
  TableRegistry registry_;
};

TEST_F(TableMountsTest, NamesTablesByTheirFlag) {
  Write("a.safetensors", 1);
  Write("b.x.safetensors", 2);
  WriteFile(folder_ / "notes.txt", "not a table");
  WriteFile(folder_ / ".hidden.safetensors", "not a table either");
  std::filesystem::create_directory(folder_ / "sub");
  WriteFile(folder_ / "only.st", "");
  const std::string one =
      WriteFile(folder_ / "sub" / "one.safetensors", SafetensorsBytes({{"single", {1}, {7}}}));
  ASSERT_THAT(Load({.folder = folder_,
                    .tables = {"t=" + (folder_ / "a.safetensors:w").string(), "u=v=" + one},
                    .checkpoints = {}}),
              StatusIs(absl::StatusCode::kNotFound, StartsWith("--table: v=")));
  ASSERT_THAT(Load({.folder = folder_,
                    .tables = {"t=" + (folder_ / "a.safetensors:w").string(), "u=" + one},
                    .checkpoints = {}}),
              IsOk());
  EXPECT_THAT(Names(), ElementsAre("a:w", "b.x:w", "t", "u"));
  EXPECT_EQ(FirstOf("b.x:w"), 2);
  EXPECT_EQ(FirstOf("u"), 7);
}

TEST_F(TableMountsTest, ErrorsNameFlagAndFile) {
  const std::string file = Write("a.safetensors", 1);
  EXPECT_THAT(Load({.folder = "/nonexistent"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "--tables: /nonexistent: No such file or directory"));
  for (const char* flag : {"x", "=x", "x="}) {
    EXPECT_THAT(
        Load({.tables = {flag}}),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(StartsWith("--table: got '"), HasSubstr("want NAME=FILE.safetensors:"))));
    EXPECT_THAT(Load({.checkpoints = {flag}}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(StartsWith("--checkpoint: got '"), HasSubstr("want NAME=FOLDER"))));
  }
  EXPECT_THAT(Load({.tables = {"t=" + file}}),
              IsInvalidWith("got the tensor '', want one of scalar, w"));
  EXPECT_THAT(Load({.tables = {"t=" + file + ":scalar"}}),
              IsInvalidWith(":scalar: got F32 [], want F64, "));
  EXPECT_THAT(Load({.checkpoints = {"m=" + folder_.string()}}),
              StatusIs(absl::StatusCode::kNotFound, AllOf(StartsWith("--checkpoint: "),
                                                          HasSubstr("config.json: no such file"))));
  WriteFile(folder_ / "b.safetensors", "damaged");
  EXPECT_THAT(
      Load({.folder = folder_}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(StartsWith("--tables: "), HasSubstr("b.safetensors: not a .safetensors"))));
}

// A ConfigMap is mounted like this: files are links to links inside the folder.
TEST_F(TableMountsTest, FollowsOnlyLinksInsideTheFolder) {
  std::filesystem::create_directories(folder_ / "outside");
  std::filesystem::create_directories(folder_ / "mount" / "..2026");
  const std::filesystem::path mount = folder_ / "mount";
  Write("outside/b.safetensors", 2);
  Write("mount/..2026/a.safetensors", 1);
  std::filesystem::create_symlink("..2026", mount / "..data");
  std::filesystem::create_symlink("..data/a.safetensors", mount / "a.safetensors");
  // The folder that the operator names may itself be a link.
  std::filesystem::create_symlink(mount, folder_ / "current");
  ASSERT_THAT(Load({.folder = folder_ / "current"}), IsOk());
  EXPECT_THAT(Names(), ElementsAre("a:w"));

  std::filesystem::create_symlink("../outside/b.safetensors", mount / "b.safetensors");
  EXPECT_THAT(Load({.folder = mount}), StatusIs(absl::StatusCode::kInvalidArgument,
                                                AllOf(StartsWith("--tables: " + mount.string()),
                                                      HasSubstr("b.safetensors: got a link to "),
                                                      HasSubstr("want a file inside "))));
  EXPECT_THAT(Names(), ElementsAre("a:w"));
  // Only the operator sets this flag.
  EXPECT_THAT(Load({.tables = {"b=" + (mount / "b.safetensors:w").string()}}), IsOk());
}

}  // namespace
}  // namespace attnbias::table_mounts_test
