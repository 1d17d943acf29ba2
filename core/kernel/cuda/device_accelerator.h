// SPDX-License-Identifier: Apache-2.0
// Accelerator over a Device: moves the data, overlaps copies with kernels, and
// gives up cleanly. What needs no device is all here, and tested on a CPU.
#ifndef ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_ACCELERATOR_H_
#define ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_ACCELERATOR_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "core/kernel/accelerator.h"
#include "core/kernel/cuda/device.h"

namespace attnbias {

// Told what an accelerator does. Called from any thread; must be quick.
class AcceleratorObserver {
 public:
  virtual ~AcceleratorObserver() = default;
  // Results that left the device.
  virtual void OnMade(int64_t bytes) = 0;
  // The CPU takes over: for all time when `for_good`, else for a piece of work
  // that there was no memory for. Called once for either.
  virtual void OnFallback(const absl::Status& why, bool for_good) = 0;
};

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
  class Expander;
  class Vectors;
  class PinnedPool;

  // Whether it is OK; if not, sees to it that this is known.
  bool Check(const absl::Status& status);

  const std::unique_ptr<Device> device_;
  const AcceleratorOptions options_;
  AcceleratorObserver& observer_;
  const std::shared_ptr<PinnedPool> pool_;
  std::atomic<bool> broken_{false};
  std::atomic<bool> was_full_{false};
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_KERNEL_CUDA_DEVICE_ACCELERATOR_H_
