// SPDX-License-Identifier: Apache-2.0
#include "server/run/machine_limits.h"

#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "tests/unit/support/fresh_folder.h"

namespace attnbias::machine_limits_test {
namespace {

const int64_t kMachine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);

// Control group hierarchies as files: the process's groups and their limits.
struct Tree {
  std::string name;
  std::string own;
  std::map<std::string, std::string> files;
  int64_t memory = kMachine;
  // 0 means as many as the affinity mask contains.
  int processors = 0;
};

void PrintTo(const Tree& tree, std::ostream* out) { *out << tree.name; }

class MachineLimits : public testing::TestWithParam<Tree> {};

TEST_P(MachineLimits, AreMinimumOfMachineAndControlGroups) {
  const Tree& tree = GetParam();
  const std::filesystem::path root = FreshFolder();
  WriteFile(root / "own", tree.own);
  for (const auto& [file, text] : tree.files) {
    std::filesystem::create_directories((root / file).parent_path());
    WriteFile(root / file, text);
  }
  const Cgroups cgroups = {.root = root.string(), .own = (root / "own").string()};
  EXPECT_EQ(MemoryLimit(cgroups), tree.memory);
  const int all = ProcessorLimit({.root = "/nonexistent", .own = ""});
  EXPECT_EQ(ProcessorLimit(cgroups), tree.processors == 0 ? all : std::min(all, tree.processors));
}

constexpr char kV1[] = "5:cpuacct,cpu:/a/b\n4:memory:/a/b\n1:name=systemd:/a/b\n";

INSTANTIATE_TEST_SUITE_P(
    Hierarchies, MachineLimits,
    testing::Values(Tree{"none", "", {}},
                    Tree{"v2",
                         "0::/a/b\n",
                         {{"a/b/memory.max", "134217728\n"}, {"a/b/cpu.max", "50000 100000"}},
                         134217728,
                         1},
                    Tree{"v2 without limits",
                         "0::/a/b\n",
                         {{"a/b/memory.max", "max\n"}, {"a/b/cpu.max", "max 100000\n"}}},
                    Tree{"v2, an ancestor's",
                         "0::/a/b\n",
                         {{"a/b/memory.max", "max\n"},
                          {"a/memory.max", "1000000\n"},
                          {"a/cpu.max", "10000 100000\n"}},
                         1000000,
                         1},
                    Tree{"v2, the mount is the group's own",
                         "0::/a/b\n",
                         {{"memory.max", "2000000\n"}},
                         2000000},
                    Tree{"v2, more than the machine has",
                         "0::/\n",
                         {{"memory.max", "9223372036854771712\n"},
                          {"cpu.max", "100000000 100000\n"}}},
                    Tree{"v1",
                         kV1,
                         {{"memory/a/b/memory.limit_in_bytes", "314572800\n"},
                          {"cpu/a/b/cpu.cfs_quota_us", "100000\n"},
                          {"cpu/a/b/cpu.cfs_period_us", "100000\n"}},
                         314572800,
                         1},
                    Tree{"v1 without limits",
                         kV1,
                         {{"memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"},
                          {"cpu/a/b/cpu.cfs_quota_us", "-1\n"},
                          {"cpu/a/b/cpu.cfs_period_us", "100000\n"}}},
                    Tree{"v1, an ancestor's",
                         kV1,
                         {{"memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"},
                          {"memory/a/memory.limit_in_bytes", "4000000\n"},
                          {"cpu/cpu.cfs_quota_us", "1000\n"},
                          {"cpu/cpu.cfs_period_us", "100000\n"}},
                         4000000,
                         1},
                    Tree{"hybrid",
                         "4:memory:/a\n0::/a\n",
                         {{"memory/a/memory.limit_in_bytes", "5000000\n"},
                          {"unified/a/cpu.max", "100000 100000\n"}},
                         5000000,
                         1}));

TEST(ProcessorLimit, FollowsCpuAffinity) {
  std::thread([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(ProcessorLimit({.root = "/nonexistent", .own = ""}), 1);
  }).join();
}

}  // namespace
}  // namespace attnbias::machine_limits_test
