// SPDX-License-Identifier: Apache-2.0
// How much memory and how many processors there are: the machine's, or less where control groups
// give this process less.
#pragma once

#include <cstdint>
#include <string>

namespace attnbias {

// Where the groups are: version 1, version 2, or both beside each other.
struct Cgroups {
  // What the hierarchies are mounted under.
  std::string root = "/sys/fs/cgroup";
  // The groups of this process, as the kernel lists them.
  std::string own = "/proc/self/cgroup";
};

// Bytes of memory that this process may use.
int64_t MemoryLimit(const Cgroups& cgroups = {});

// Processors that it may use at once, at least 1: those of its affinity, or as many as its quota of
// time is worth, rounded up.
int ProcessorLimit(const Cgroups& cgroups = {});

}  // namespace attnbias
