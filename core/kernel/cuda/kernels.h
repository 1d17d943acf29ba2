// SPDX-License-Identifier: Apache-2.0
// Starts a kernel on a stream and returns the result of cudaGetLastError.
#pragma once

#include <cuda_runtime_api.h>

#include "core/kernel/cuda/kernel_bodies.h"

namespace attnbias {

cudaError_t StartKernel(const ExpansionLaunch& launch, cudaStream_t stream);

}  // namespace attnbias
