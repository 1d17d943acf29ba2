// SPDX-License-Identifier: Apache-2.0
// Keeps pinned memory of the host for the next piece of work: pinning costs
// more than a piece's computation.
#ifndef ATTNBIAS_CORE_KERNEL_CUDA_PINNED_POOL_H_
#define ATTNBIAS_CORE_KERNEL_CUDA_PINNED_POOL_H_

#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "core/base/mutex.h"
#include "core/kernel/cuda/device.h"

namespace attnbias {

// Any number of threads may use it at once. Lives as long as what it gave.
class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  // Until the last Allocate, `device` must be there.
  explicit PinnedPool(Device* device) : device_(*device) {}

  absl::StatusOr<SharedMemory> Allocate(int64_t bytes);

 private:
  SharedMemory Take(int64_t size);

  Device& device_;
  Mutex mutex_;
  std::multimap<int64_t, SharedMemory> free_ ABSL_GUARDED_BY(mutex_);
  int64_t free_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_KERNEL_CUDA_PINNED_POOL_H_
