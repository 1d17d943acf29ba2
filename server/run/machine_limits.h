// SPDX-License-Identifier: Apache-2.0
// Memory and processors of this process: the machine's, or the limits of its control groups.
#pragma once

#include <cstdint>
#include <string>

namespace attnbias {

// Paths of control groups of version 1, version 2 or both.
struct Cgroups {
  // Mount point of the hierarchies.
  std::string root = "/sys/fs/cgroup";
  // The kernel's list of the groups of this process.
  std::string own = "/proc/self/cgroup";
};

// Returns the bytes of memory that this process may use.
int64_t MemoryLimit(const Cgroups& cgroups = {});

// Returns the number of processors, at least 1: those of its affinity, or its quota of time,
// rounded up.
int ProcessorLimit(const Cgroups& cgroups = {});

}  // namespace attnbias
