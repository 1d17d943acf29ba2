// SPDX-License-Identifier: Apache-2.0
// Products with vectors that a device keeps.
#ifndef ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_VECTORS_H_
#define ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_VECTORS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/kernel/accelerator.h"
#include "core/kernel/cuda/guarded_device.h"

namespace attnbias {

// Copies the numbers; `device` outlives the result.
absl::StatusOr<std::unique_ptr<DeviceVectors>> KeepVectorsOnDevice(
    const std::byte* numbers, int64_t bytes, GuardedDevice* device);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_VECTORS_H_
