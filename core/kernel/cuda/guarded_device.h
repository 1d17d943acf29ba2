// SPDX-License-Identifier: Apache-2.0
// A device, and whether it still works.
#ifndef ATTNBIAS_CORE_KERNEL_CUDA_GUARDED_DEVICE_H_
#define ATTNBIAS_CORE_KERNEL_CUDA_GUARDED_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "core/kernel/cuda/device.h"

namespace attnbias {

// Told what a device does. Called from any thread; must be quick.
class AcceleratorObserver {
 public:
  virtual ~AcceleratorObserver() = default;
  // Results that left the device.
  virtual void OnMade(int64_t bytes) = 0;
  // The CPU takes over: for all work when `for_good`, else for one piece that
  // there was no memory for. Called at most once for either.
  virtual void OnFallback(const absl::Status& why, bool for_good) = 0;
};

// Any number of threads may use it at once.
class GuardedDevice {
 public:
  // `observer` outlives this.
  GuardedDevice(std::unique_ptr<Device> device, AcceleratorObserver* observer)
      : device_(std::move(device)), observer_(*observer) {}

  Device& operator*() const { return *device_; }
  Device* operator->() const { return device_.get(); }

  // False once anything but memory has failed.
  bool works() const { return !broken_; }
  // Whether `status` is OK. If not, tells the observer, and gives the device up
  // unless it only lacked memory.
  bool Check(const absl::Status& status) {
    if (status.ok()) return true;
    if (absl::IsResourceExhausted(status)) {
      if (!was_full_.exchange(true)) observer_.OnFallback(status, false);
    } else if (!broken_.exchange(true)) {
      observer_.OnFallback(status, true);
    }
    return false;
  }
  void Made(int64_t bytes) { observer_.OnMade(bytes); }

 private:
  const std::unique_ptr<Device> device_;
  AcceleratorObserver& observer_;
  std::atomic<bool> broken_{false};
  std::atomic<bool> was_full_{false};
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_KERNEL_CUDA_GUARDED_DEVICE_H_
