// SPDX-License-Identifier: Apache-2.0
// Accelerator over a Device: what is worth handing over, and giving up cleanly.
// Everything that needs no device is in this folder's code that tests run on a
// CPU.
#ifndef ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_ACCELERATOR_H_
#define ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_ACCELERATOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "core/kernel/accelerator.h"
#include "core/kernel/cuda/guarded_device.h"
#include "core/kernel/cuda/pinned_pool.h"

namespace attnbias {

struct AcceleratorOptions {
  // Results smaller than this are left to the CPU.
  int64_t min_bytes = 0;
  // Whether the device also makes what the CPU would send without writing it.
  bool replace_slices = false;
};

class DeviceAccelerator final : public Accelerator {
 public:
  // `observer` outlives this.
  DeviceAccelerator(std::unique_ptr<Device> device,
                    const AcceleratorOptions& options,
                    AcceleratorObserver* observer);

  std::string_view name() const override { return "cuda"; }
  bool Wants(int64_t bytes, bool cpu_writes_nothing) const override;
  std::shared_ptr<std::byte> AllocateHost(int64_t bytes) override;
  std::unique_ptr<DenseExpander> MakeExpander(
      const DenseExpansion& expansion) override;
  bool FillSinusoids(const SinusoidBlocks& blocks, std::byte* out,
                     std::vector<int64_t>* undecided) override;
  std::unique_ptr<DeviceVectors> KeepVectors(const std::byte* numbers,
                                             int64_t bytes) override;

 private:
  GuardedDevice device_;
  const AcceleratorOptions options_;
  const std::shared_ptr<PinnedPool> pool_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_ACCELERATOR_H_
