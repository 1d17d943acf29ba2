// SPDX-License-Identifier: Apache-2.0
// A device that makes large pieces of work: the same bits as the CPU, on
// memory of its own behind a bus.
//
// Everything here may be declined, and then the caller does it on the CPU: a
// device may be missing, broken or full, or the work may be too small for it.
#ifndef ATTNBIAS_CORE_KERNEL_CUDA_ACCELERATOR_H_
#define ATTNBIAS_CORE_KERNEL_CUDA_ACCELERATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/kernel/cuda/dense_expander.h"
#include "core/kernel/cuda/device_sinusoids.h"
#include "core/kernel/cuda/device_vectors.h"
#include "core/kernel/cuda/guarded_device.h"
#include "core/kernel/cuda/pinned_pool.h"

namespace attnbias {

struct AcceleratorOptions {
  // Results smaller than this are left to the CPU.
  int64_t min_bytes = 0;
  // Whether the device also makes what the CPU would send without writing it.
  bool replace_slices = false;
};

// Any number of threads may use it at once.
class Accelerator {
 public:
  // `observer` outlives this.
  Accelerator(std::unique_ptr<Device> device, const AcceleratorOptions& options,
              AcceleratorObserver* observer);

  // Whether work that results in so many bytes is worth handing over. The CPU
  // writes nothing for what it sends as slices.
  bool Wants(int64_t bytes, bool cpu_writes_nothing) const;

  // Memory that the device writes to fast; null when there is none.
  std::shared_ptr<std::byte> AllocateHost(int64_t bytes);
  // Null when it cannot be done. Copies what the expansion points at.
  std::unique_ptr<DenseExpander> MakeExpander(const DenseExpansion& expansion);
  // Writes elements, and the indices of those whose rounding is undecided, as
  // FillSinusoid does, but overruns nothing. Columns that hold neither a sine
  // nor a cosine become 0. False when it cannot be done; it may have written
  // then.
  bool FillSinusoids(const SinusoidBlocks& blocks, std::byte* out,
                     std::vector<int64_t>* undecided);
  // Null when it cannot be done. Copies the numbers.
  std::unique_ptr<DeviceVectors> KeepVectors(const std::byte* numbers,
                                             int64_t bytes);

 private:
  GuardedDevice device_;
  const AcceleratorOptions options_;
  const std::shared_ptr<PinnedPool> pool_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_KERNEL_CUDA_ACCELERATOR_H_
