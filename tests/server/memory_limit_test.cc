// SPDX-License-Identifier: Apache-2.0
#include "server/memory_limit.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace attnbias {
namespace {

const int64_t kMachine =
    int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);

class MemoryLimitOf
    : public testing::TestWithParam<std::pair<const char*, int64_t>> {};

TEST_P(MemoryLimitOf, IsTheLeastOfMachineAndCgroups) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) /
                                     ("cgroup" + std::to_string(getpid()));
  std::filesystem::create_directories(root);
  std::ofstream(root / "memory.max") << GetParam().first;
  EXPECT_EQ(MemoryLimit(root.string()), GetParam().second);
  std::filesystem::remove_all(root);
}

INSTANTIATE_TEST_SUITE_P(
    Files, MemoryLimitOf,
    testing::Values(std::pair("134217728\n", int64_t{134217728}),
                    std::pair("max\n", kMachine),
                    std::pair("9223372036854771712\n", kMachine)));

TEST(MemoryLimit, WithoutCgroupsIsTheMachines) {
  EXPECT_EQ(MemoryLimit("/nonexistent"), kMachine);
}

}  // namespace
}  // namespace attnbias
