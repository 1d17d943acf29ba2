// SPDX-License-Identifier: Apache-2.0
#include "core/kernel/kernel_set.h"

#include <vector>

#include "hwy/targets.h"

namespace attnbias {

std::span<const KernelSet* const> SupportedKernelSets() {
  static const auto* const sets = [] {
    auto* supported = new std::vector<const KernelSet*>;
    for (const BuiltKernelSet& built : BuiltKernelSets()) {
      // Every CPU supports the set that needs no vectors.
      if (built.target == HWY_SCALAR || (hwy::SupportedTargets() & built.target) != 0) {
        supported->push_back(&built.kernels);
      }
    }
    return supported;
  }();
  return *sets;
}

const KernelSet* FindKernelSet(std::string_view name) {
  for (const KernelSet* set : SupportedKernelSets()) {
    if (set->name == name) return set;
  }
  return nullptr;
}

}  // namespace attnbias
