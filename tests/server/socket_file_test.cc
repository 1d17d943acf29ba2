// SPDX-License-Identifier: Apache-2.0
#include "server/socket_file.h"

#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace attnbias::socket_file_test {
namespace {

using testing::HasSubstr;

class SocketFileTest : public testing::Test {
 protected:
  SocketFileTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    fds_[0] = socket(AF_UNIX, SOCK_STREAM, 0);
    fds_[1] = socket(AF_UNIX, SOCK_STREAM, 0);
  }
  ~SocketFileTest() override {
    for (const int fd : fds_) close(fd);
  }

  absl::Status Refused() { return SocketFile::Bind(fds_[1], path_).status(); }

  const std::string folder_ =
      testing::TempDir() +
      testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::string path_ = folder_ + "/a.sock";
  int fds_[2];
};

TEST_F(SocketFileTest, IsRemovedWithItsObject) {
  auto file = SocketFile::Bind(fds_[0], path_);
  ASSERT_THAT(file, IsOk());
  EXPECT_TRUE(std::filesystem::is_socket(path_));
  file->reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SocketFileTest, OneThatALiveServerHasIsRefused) {
  const auto file = SocketFile::Bind(fds_[0], path_);
  ASSERT_EQ(listen(fds_[0], 0), 0);
  // The second one finds the queue full.
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Refused(), StatusIs(absl::StatusCode::kUnavailable,
                                    HasSubstr("another server listens")));
  }
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(SocketFileTest, OneThatADeadServerLeftIsReplaced) {
  auto left = SocketFile::Bind(fds_[0], path_);
  listen(fds_[0], 1);
  close(std::exchange(fds_[0], -1));
  auto file = SocketFile::Bind(fds_[1], path_);
  ASSERT_THAT(file, IsOk());
  // It is another file now.
  left->reset();
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(SocketFileTest, AnyOtherFileIsLeftAlone) {
  std::ofstream(path_) << "mine";
  EXPECT_THAT(Refused(), StatusIs(absl::StatusCode::kUnavailable,
                                  HasSubstr("a file that is not a socket")));
  EXPECT_EQ(std::filesystem::file_size(path_), 4u);
}

TEST_F(SocketFileTest, ALinkIsLeftAlone) {
  std::filesystem::create_symlink(folder_ + "/elsewhere", path_);
  EXPECT_THAT(Refused(), StatusIs(absl::StatusCode::kUnavailable,
                                  HasSubstr("a file that is not a socket")));
}

TEST_F(SocketFileTest, TheFolderHasToExist) {
  EXPECT_THAT(SocketFile::Bind(fds_[0], folder_ + "/none/a.sock"),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("there is no folder '" + folder_ + "/none'")));
}

struct Good {
  const char* address;
  const char* path;
};

class GoodPath : public testing::TestWithParam<Good> {};

TEST_P(GoodPath, IsRead) {
  EXPECT_TRUE(IsUnix(GetParam().address));
  EXPECT_EQ(ParseUnixPath(GetParam().address).value(), GetParam().path);
}

INSTANTIATE_TEST_SUITE_P(SocketFile, GoodPath,
                         testing::Values(Good{"unix:/run/a", "/run/a"},
                                         Good{"unix:///run/a", "/run/a"},
                                         Good{"unix:a/b", "a/b"}));

}  // namespace
}  // namespace attnbias::socket_file_test
