// SPDX-License-Identifier: Apache-2.0
#include "core/kernel/cuda/kernel_bodies.h"
#include "core/kernel/cuda/kernels.h"

namespace attnbias {
namespace {

template <typename Bits>
__global__ void __launch_bounds__(kThreadsPerBlock)
    Expand(const __grid_constant__ ExpansionLaunch launch) {
  ExpandThread<Bits>(launch, blockIdx.x, static_cast<int>(threadIdx.x));
}

}  // namespace

cudaError_t StartKernel(const ExpansionLaunch& launch, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(launch.blocks());
  if (launch.element_bytes == 2) {
    Expand<uint16_t><<<blocks, kThreadsPerBlock, 0, stream>>>(launch);
  } else if (launch.element_bytes == 4) {
    Expand<uint32_t><<<blocks, kThreadsPerBlock, 0, stream>>>(launch);
  } else {
    Expand<uint64_t><<<blocks, kThreadsPerBlock, 0, stream>>>(launch);
  }
  return cudaGetLastError();
}

}  // namespace attnbias
