// SPDX-License-Identifier: Apache-2.0
#include "server/run/machine_limits.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_split.h"

namespace attnbias {
namespace {

// Returns the numbers at the beginning of a file; none if it begins with "max" or does not exist.
std::vector<double> Numbers(const std::string& path) {
  std::ifstream file(path);
  return {std::istream_iterator<double>(file), {}};
}

// Calls `visit` with the folders of this process's control group and of the group's ancestors in
// the controller's hierarchies. The limits of all these groups apply to the process.
template <typename Visit>
void ForEachGroup(const Cgroups& cgroups, const std::string& controller, Visit visit) {
  const auto ascend = [&visit](const std::string& mount, std::string group) {
    for (;;) {
      visit(mount + group);
      const size_t slash = group.rfind('/');
      if (slash == std::string::npos) return;
      group.resize(slash);
    }
  };
  std::ifstream own(cgroups.own);
  // "4:memory:/a/b"; in version 2, "0::/a/b".
  for (std::string line; std::getline(own, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    if (fields[1].empty()) {
      ascend(cgroups.root, fields[2]);
      ascend(cgroups.root + "/unified", fields[2]);
    } else if (absl::c_linear_search(absl::StrSplit(fields[1], ','),
                                     absl::string_view(controller))) {
      ascend(cgroups.root + "/" + controller, fields[2]);
    }
  }
}

}  // namespace

int64_t MemoryLimit(const Cgroups& cgroups) {
  auto least =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  ForEachGroup(cgroups, "memory", [&least](const std::string& group) {
    for (const char* file : {"/memory.max", "/memory.limit_in_bytes"}) {
      for (const double limit : Numbers(group + file)) {
        least = std::min(least, limit);
      }
    }
  });
  return static_cast<int64_t>(least);
}

int ProcessorLimit(const Cgroups& cgroups) {
  cpu_set_t affinity;
  CPU_ZERO(&affinity);
  const bool known = sched_getaffinity(0, sizeof(affinity), &affinity) == 0;
  double least = known ? CPU_COUNT(&affinity) : static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
  ForEachGroup(cgroups, "cpu", [&least](const std::string& group) {
    std::vector<double> quota = Numbers(group + "/cpu.max");
    if (quota.empty()) {
      quota = Numbers(group + "/cpu.cfs_quota_us");
      absl::c_copy(Numbers(group + "/cpu.cfs_period_us"), std::back_inserter(quota));
    }
    // A quota of -1 means no limit.
    if (quota.size() == 2 && quota[0] > 0 && quota[1] > 0) {
      least = std::min(least, quota[0] / quota[1]);
    }
  });
  return std::max(1, static_cast<int>(std::ceil(least)));
}

}  // namespace attnbias
