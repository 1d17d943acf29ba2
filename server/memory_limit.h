// SPDX-License-Identifier: Apache-2.0
// How much memory there is.
#ifndef ATTNBIAS_SERVER_MEMORY_LIMIT_H_
#define ATTNBIAS_SERVER_MEMORY_LIMIT_H_

#include <cstdint>
#include <string>

namespace attnbias {

// Bytes of memory this process may use: the machine's, or less where a
// container (cgroup v2) is given less. `cgroup_root` is where the hierarchy is
// mounted.
int64_t MemoryLimit(const std::string& cgroup_root = "/sys/fs/cgroup");

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_MEMORY_LIMIT_H_
