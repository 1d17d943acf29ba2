// SPDX-License-Identifier: Apache-2.0
#include "core/kernel/cuda/kernel_bodies.h"
#include "core/kernel/cuda/kernels.h"

namespace attnbias {
namespace {

template <int kBytes>
__global__ void __launch_bounds__(kThreadsPerBlock)
    Expand(const __grid_constant__ ExpansionLaunch launch) {
  ExpandThread<kBytes>(launch, blockIdx.x, static_cast<int>(threadIdx.x));
}

template <class Element>
__global__ void __launch_bounds__(kThreadsPerBlock)
    FillSinusoid(const __grid_constant__ SinusoidLaunch launch,
                 const DeviceArray<typename Element::Bits> out) {
  SinusoidThread<Element>(launch, out, blockIdx.x, static_cast<int>(threadIdx.x));
}

}  // namespace

cudaError_t StartKernel(const ExpansionLaunch& launch, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(launch.blocks());
  if (launch.element_bytes == 2) {
    Expand<2><<<blocks, kThreadsPerBlock, 0, stream>>>(launch);
  } else if (launch.element_bytes == 4) {
    Expand<4><<<blocks, kThreadsPerBlock, 0, stream>>>(launch);
  } else {
    Expand<8><<<blocks, kThreadsPerBlock, 0, stream>>>(launch);
  }
  return cudaGetLastError();
}

cudaError_t StartKernel(const SinusoidLaunch& launch, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(launch.blocks());
  if (launch.type == DataType::kF32) {
    FillSinusoid<F32Element><<<blocks, kThreadsPerBlock, 0, stream>>>(launch, launch.out_f32);
  } else if (launch.type == DataType::kBF16) {
    FillSinusoid<Bf16Element><<<blocks, kThreadsPerBlock, 0, stream>>>(launch, launch.out_16);
  } else {
    FillSinusoid<F16Element><<<blocks, kThreadsPerBlock, 0, stream>>>(launch, launch.out_16);
  }
  return cudaGetLastError();
}

}  // namespace attnbias
