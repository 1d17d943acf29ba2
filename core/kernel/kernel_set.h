// SPDX-License-Identifier: Apache-2.0
// The CPU kernel sets in this binary, and those that this machine can run.
#ifndef ATTNBIAS_CORE_KERNEL_KERNEL_SET_H_
#define ATTNBIAS_CORE_KERNEL_KERNEL_SET_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "core/kernel/kernels.h"

namespace attnbias {

struct BuiltKernelSet {
  KernelSet kernels;
  // Highway's bit for the instruction set.
  int64_t target;
};

// Best first, "scalar" last.
std::span<const BuiltKernelSet> BuiltKernelSets();

// Those this CPU runs, in the same order. Never empty.
std::span<const KernelSet* const> SupportedKernelSets();

// The supported set of that name, or null.
const KernelSet* FindKernelSet(std::string_view name);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_KERNEL_KERNEL_SET_H_
