// SPDX-License-Identifier: Apache-2.0
// Which kernel sets this machine can run.
#ifndef ATTNBIAS_CORE_KERNEL_KERNEL_SET_H_
#define ATTNBIAS_CORE_KERNEL_KERNEL_SET_H_

#include <string_view>

#include "absl/types/span.h"
#include "core/kernel/kernels.h"

namespace attnbias {

// Those this CPU runs: best first, "scalar" last. Never empty.
absl::Span<const KernelSet* const> SupportedKernelSets();

// The supported set of that name, or null.
const KernelSet* FindKernelSet(std::string_view name);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_KERNEL_KERNEL_SET_H_
