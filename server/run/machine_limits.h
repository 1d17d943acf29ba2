// SPDX-License-Identifier: Apache-2.0
// Memory and processors available to this process under its control groups and affinity mask.
#pragma once

#include <cstdint>
#include <string>

namespace attnbias {

// Paths of control groups (version 1, version 2 or both).
struct Cgroups {
  // Mount point of the hierarchies.
  std::string root = "/sys/fs/cgroup";
  // The kernel's list of this process's groups.
  std::string own = "/proc/self/cgroup";
};

// Returns how many bytes of memory this process may use.
int64_t MemoryLimit(const Cgroups& cgroups = {});

// Returns the number of processors that this process may use, at least 1: those in its affinity
// mask or its CPU quota rounded up, whichever is smaller.
int ProcessorLimit(const Cgroups& cgroups = {});

}  // namespace attnbias
