// SPDX-License-Identifier: Apache-2.0
// Starts kernels on a stream. Errors are cudaGetLastError's.
#ifndef ATTNBIAS_CORE_KERNEL_CUDA_KERNELS_H_
#define ATTNBIAS_CORE_KERNEL_CUDA_KERNELS_H_

#include <cuda_runtime_api.h>

#include "core/kernel/cuda/launches.h"

namespace attnbias {

cudaError_t StartKernel(const ExpansionLaunch& launch, cudaStream_t stream);
cudaError_t StartKernel(const SinusoidLaunch& launch, cudaStream_t stream);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_KERNEL_CUDA_KERNELS_H_
