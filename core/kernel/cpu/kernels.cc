// SPDX-License-Identifier: Apache-2.0
// Compiles the kernels once per instruction set, and lists the results.
#include "core/kernel/kernel_set.h"

// Additional instruction sets would double the testing work. "scalar" excludes GCC's vectors, as
// its name promises.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_BROKEN_EMU128 1
#define HWY_COMPILE_ALL_ATTAINABLE
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernel/cpu/kernels-inl.h"
#include "hwy/foreach_target.h"
// The pass for the static target itself.
#include "core/kernel/cpu/kernels-inl.h"

namespace attnbias {

std::span<const BuiltKernelSet> BuiltKernelSets() {
  static constexpr BuiltKernelSet sets[] = {
#if (HWY_TARGETS & HWY_AVX3) != 0
    {N_AVX3::MakeKernelSet("avx512"), HWY_AVX3},
#endif
#if (HWY_TARGETS & HWY_AVX2) != 0
    {N_AVX2::MakeKernelSet("avx2"), HWY_AVX2},
#endif
#if (HWY_TARGETS & HWY_NEON) != 0
    {N_NEON::MakeKernelSet("neon"), HWY_NEON},
#endif
    {N_SCALAR::MakeKernelSet("scalar"), HWY_SCALAR},
  };
  return sets;
}

}  // namespace attnbias
