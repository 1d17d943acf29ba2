// SPDX-License-Identifier: Apache-2.0
// The CPU kernel sets in this binary, whether or not this CPU runs them.
#ifndef ATTNBIAS_CORE_KERNEL_CPU_BUILT_KERNEL_SETS_H_
#define ATTNBIAS_CORE_KERNEL_CPU_BUILT_KERNEL_SETS_H_

#include <cstdint>
#include <span>

#include "core/kernel/kernels.h"

namespace attnbias {

struct BuiltKernelSet {
  KernelSet kernels;
  // Highway's bit for the instruction set.
  int64_t target;
};

// Best first, "scalar" last.
std::span<const BuiltKernelSet> BuiltKernelSets();

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_KERNEL_CPU_BUILT_KERNEL_SETS_H_
