// SPDX-License-Identifier: Apache-2.0
#include "core/file/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/unit/support/fresh_folder.h"
#include "tests/unit/support/safetensors_writer.h"
#include "tests/unit/support/status_matchers.h"

namespace attnbias::regular_file_test {
namespace {

namespace fs = std::filesystem;

class RegularFileTest : public testing::Test {
 protected:
  RegularFileTest() : top_(fs::canonical(FreshFolder())) {}

  // Writes a file, and creates the folders above it.
  std::string Write(const std::string& path) const {
    fs::create_directories((top_ / path).parent_path());
    return WriteFile(top_ / path, "content");
  }

  std::string Link(const std::string& target, const std::string& path) const {
    fs::create_directories((top_ / path).parent_path());
    fs::create_symlink(target, top_ / path);
    return top_ / path;
  }

  const fs::path top_;
};

TEST_F(RegularFileTest, ReadsRanges) {
  const std::string path = Write("a");
  absl::StatusOr<RegularFile> opened = RegularFile::Open(path);
  ASSERT_THAT(opened, IsOk());
  const RegularFile file = *std::move(opened);
  EXPECT_EQ(file.path(), path);
  EXPECT_EQ(file.size(), 7);
  EXPECT_EQ(*file.Read(0, 7), "content");
  EXPECT_EQ(*file.Read(3, 5), "te");
  EXPECT_EQ(*file.Read(7, 7), "");
  EXPECT_THAT(file.Read(5, 9),
              StatusIs(absl::StatusCode::kInvalidArgument, "ended at byte 7, want 9"));
}

TEST_F(RegularFileTest, RejectsNonRegularFilesByName) {
  const std::string fifo = top_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::string loop = Link("loop", "loop");
  const std::string absent = top_ / "absent";
  EXPECT_THAT(RegularFile::Open(absent),
              StatusIs(absl::StatusCode::kNotFound, absent + ": no such file"));
  for (const auto& [path, says] :
       {std::pair(top_.string(), "got a folder, want a regular file"),
        std::pair(fifo, "got a FIFO, want a regular file"),
        std::pair(std::string("/dev/null"), "got a device, want a regular"),
        std::pair(loop, "cannot be opened: Too many levels")}) {
    EXPECT_THAT(RegularFile::Open(path), IsInvalid(absl::StrCat(path, ": ", says)));
  }
}

TEST_F(RegularFileTest, DescriptorIsCloseOnExec) {
  const std::string path = Write("a");
  const int next = ::open("/dev/null", O_RDONLY);
  ::close(next);
  const absl::StatusOr<RegularFile> file = RegularFile::Open(path);
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ(::fcntl(next, F_GETFD), FD_CLOEXEC);
}

TEST_F(RegularFileTest, FollowsAnyLinkIfNoFolderIsGiven) {
  Write("a");
  EXPECT_THAT(RegularFile::Open(Link("../a", "in/link")), IsOk());
}

TEST_F(RegularFileTest, RejectsLinksOutOfFolder) {
  Write("in/..v2/sub/a");
  Write("inside/a");  // its name begins like the folder's
  Link("..v2", "in/..data");
  const std::string folder = top_ / "in";
  for (const std::string& path :
       {Link("..data/sub/a", "in/by_links"), Write("in/plain"), Link("../in/plain", "in/and_back"),
        Link(folder + "/plain", "in/absolute"), folder + "/../in/plain"}) {
    EXPECT_THAT(RegularFile::Open(path, folder), IsOk()) << path;
  }
  for (const std::string& path :
       {Link("../inside/a", "in/link"), Link("../inside", "in/sub") + "/a", folder + "/../inside/a",
        Link("/etc/passwd", "in/passwd")}) {
    EXPECT_THAT(RegularFile::Open(path, folder),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         absl::StrCat(path, ": got a link to ", fs::canonical(path).string(),
                                      ", want a file inside ", folder)));
  }
}

TEST_F(RegularFileTest, FolderItselfMayBeALink) {
  Write("v2/a");
  const std::string folder = Link("v2", "current");
  EXPECT_THAT(RegularFile::Open(folder + "/a", folder), IsOk());
}

TEST_F(RegularFileTest, AllowsLinksToBlobsOnlyFromSnapshots) {
  Write("models--m/blobs/a");
  Write("models--m/refs/a");
  Write("models--n/blobs/a");
  Write("other/blobs/a");
  const auto open = [this](const std::string& target, const std::string& path) {
    const std::string link = Link(target, path);
    return RegularFile::Open(link, fs::path(link).parent_path()).status();
  };
  EXPECT_THAT(open("../../blobs/a", "models--m/snapshots/1/a"), IsOk());
  EXPECT_THAT(open("../../../blobs/a", "models--m/snapshots/1/sub/a"), IsOk());
  for (const auto& [target, path] :
       {std::pair("../../refs/a", "models--m/snapshots/1/refs"),
        std::pair("../../../models--n/blobs/a", "models--m/snapshots/1/n"),
        std::pair("../blobs/a", "models--m/snapshots/a"),
        std::pair("../../blobs/a", "other/snapshots/1/a")}) {
    EXPECT_THAT(open(target, path), IsInvalidWith("got a link to ")) << path;
  }
}

}  // namespace
}  // namespace attnbias::regular_file_test
