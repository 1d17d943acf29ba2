// SPDX-License-Identifier: Apache-2.0
// Products with vectors that a device keeps.
#ifndef ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_VECTORS_H_
#define ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_VECTORS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/mutex.h"
#include "core/kernel/cuda/guarded_device.h"

namespace attnbias {

// Any number of threads may use it at once.
class DeviceVectors {
 public:
  // `device` outlives this.
  explicit DeviceVectors(GuardedDevice* device) : device_(*device) {}

  // Copies the numbers. First, and once.
  absl::Status Start(const std::byte* numbers, int64_t bytes);

  // Writes [rows, output_columns] to `out`; all matrices are row-major without
  // holes. False when it cannot be done. T is float or double.
  template <typename T>
  bool Multiply(const VectorProduct& product, const T* input, T* out);

 private:
  // What one product needs; kept for the next.
  struct Workspace {
    SharedMemory device;
    int64_t bytes = 0;
    std::unique_ptr<Stream> stream;  // goes first, and waits
  };

  template <typename T>
  absl::Status TryMultiply(const VectorProduct& product, const T* input,
                           T* out);
  absl::StatusOr<std::unique_ptr<Workspace>> Take(int64_t bytes);

  GuardedDevice& device_;
  SharedMemory numbers_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_VECTORS_H_
