// SPDX-License-Identifier: Apache-2.0
#include "server/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

namespace attnbias {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The file holds a number, or "max".
int64_t ReadLimit(const std::string& path) {
  std::ifstream file(path);
  int64_t limit = 0;
  return file >> limit ? limit : kUnlimited;
}

// Path of this process inside the hierarchy: the line "0::/a/b".
std::string OwnCgroup() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) return line.substr(3);
  }
  return "/";
}

}  // namespace

int64_t MemoryLimit(const std::string& cgroup_root) {
  int64_t limit = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  // A limit on any ancestor binds too.
  for (std::string group = OwnCgroup();;) {
    limit = std::min(limit, ReadLimit(cgroup_root + group + "/memory.max"));
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return limit;
    group.resize(slash);
  }
}

}  // namespace attnbias
