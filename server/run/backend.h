// SPDX-License-Identifier: Apache-2.0
// Computes with the CPU's kernels and, if one exists and is enabled, a CUDA device.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/kernel/cuda/accelerator.h"
#include "core/kernel/kernel_set.h"
#include "server/observe/metrics.h"
#include "server/run/config.h"

namespace attnbias {

class Backend final : public AcceleratorObserver {
 public:
  // INVALID_ARGUMENT, naming the flag, for kernels that this CPU does not have. A device that is
  // missing is only logged. `metrics` outlives the result.
  static absl::StatusOr<std::unique_ptr<Backend>> Create(const ServerConfig& config,
                                                         Metrics* metrics);

  const KernelSet& kernels() const { return kernels_; }
  // Backends at hand, the one in use first.
  std::vector<std::string> names() const;
  bool uses_device() const { return uses_device_; }

  void OnMade(int64_t bytes) override { metrics_.MadeByCuda(bytes); }
  void OnFallback(const absl::Status& why, bool for_good) override;

 private:
  Backend(const KernelSet& kernels, Metrics* metrics) : kernels_(kernels), metrics_(*metrics) {}
  void OpenDevice(const ServerConfig& config);

  // Chosen kernels, with the device.
  KernelSet kernels_;
  Metrics& metrics_;
  std::unique_ptr<Accelerator> accelerator_;
  std::atomic<bool> uses_device_{false};
};

}  // namespace attnbias
