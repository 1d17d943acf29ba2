// SPDX-License-Identifier: Apache-2.0
#include "server/run/machine_limits.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_split.h"

namespace attnbias {
namespace {

// The number in a file; nothing where it says "max", or is not there.
std::optional<double> ReadNumber(std::ifstream& file) {
  double number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}
std::optional<double> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  return ReadNumber(file);
}

// The least of `limit` and what `read(group)` has for this process's group and
// its ancestors in the hierarchies of that controller, each of which binds.
// `read_v2` is for groups of version 2.
template <typename Read, typename ReadV2>
double Least(double limit, const Cgroups& cgroups,
             const std::string& controller, Read read, ReadV2 read_v2) {
  const auto ascend = [&](const std::string& mount, std::string group,
                          auto read_group) {
    for (;;) {
      limit = std::min(limit, read_group(mount + group).value_or(limit));
      const size_t slash = group.rfind('/');
      if (slash == std::string::npos) return;
      group.resize(slash);
    }
  };
  std::ifstream own(cgroups.own);
  // "4:memory:/a/b"; of version 2, "0::/a/b".
  for (std::string line; std::getline(own, line);) {
    const std::vector<std::string> fields =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    if (fields[1].empty()) {
      ascend(cgroups.root, fields[2], read_v2);
      ascend(cgroups.root + "/unified", fields[2], read_v2);
    } else if (absl::c_linear_search(absl::StrSplit(fields[1], ','),
                                     absl::string_view(controller))) {
      ascend(cgroups.root + "/" + controller, fields[2], read);
    }
  }
  return limit;
}

}  // namespace

int64_t MemoryLimit(const Cgroups& cgroups) {
  const auto machine = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                       static_cast<double>(sysconf(_SC_PAGESIZE));
  return static_cast<int64_t>(Least(
      machine, cgroups, "memory",
      [](const std::string& group) {
        return ReadNumber(group + "/memory.limit_in_bytes");
      },
      [](const std::string& group) {
        return ReadNumber(group + "/memory.max");
      }));
}

int ProcessorLimit(const Cgroups& cgroups) {
  cpu_set_t affinity;
  CPU_ZERO(&affinity);
  const bool known = sched_getaffinity(0, sizeof(affinity), &affinity) == 0;
  const double processors =
      known ? CPU_COUNT(&affinity)
            : static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
  const double least = Least(
      processors, cgroups, "cpu",
      [](const std::string& group) -> std::optional<double> {
        const auto quota = ReadNumber(group + "/cpu.cfs_quota_us");
        const auto period = ReadNumber(group + "/cpu.cfs_period_us");
        // A quota of -1 is none.
        if (!quota || *quota <= 0 || !period || *period <= 0) {
          return std::nullopt;
        }
        return *quota / *period;
      },
      [](const std::string& group) -> std::optional<double> {
        std::ifstream file(group + "/cpu.max");
        const auto quota = ReadNumber(file);
        const auto period = ReadNumber(file);
        if (!quota || !period || *period <= 0) return std::nullopt;
        return *quota / *period;
      });
  return std::max(1, static_cast<int>(std::ceil(least)));
}

}  // namespace attnbias
