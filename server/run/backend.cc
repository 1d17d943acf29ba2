// SPDX-License-Identifier: Apache-2.0
#include "server/run/backend.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "server/observe/logging.h"

namespace attnbias {
namespace {

absl::StatusOr<const KernelSet*> ChooseKernels(const std::string& name) {
  if (const KernelSet* kernels = FindKernelSet(name)) return kernels;
  return Invalid(
      "--cpu-isa: got '", name, "', want one that this CPU supports: ",
      absl::StrJoin(SupportedKernelSets(), ", ", [](std::string* out, const KernelSet* kernels) {
        out->append(kernels->name);
      }));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> Backend::Create(const ServerConfig& config,
                                                         Metrics* metrics) {
  ATTNBIAS_ASSIGN_OR_RETURN(const KernelSet* kernels, ChooseKernels(config.cpu_isa));
  std::unique_ptr<Backend> backend(new Backend(*kernels, metrics));
  backend->OpenDevice(config);
  return backend;
}

void Backend::OpenDevice(const ServerConfig& config) {
  const bool is_auto = config.backend == "auto";
  // Results leave over a network. Whether a device is worth its transfers has to be measured
  // (docs/cuda.md): without --cuda-min-bytes it is left alone.
  if (config.backend == "cpu" || (is_auto && config.cuda_min_bytes == 0)) {
    return;
  }
  absl::StatusOr<std::unique_ptr<Device>> device = OpenCudaDevice();
  if (!device.ok()) {
    LogWarning(absl::StrCat("--backend ", config.backend,
                            ": computing on the CPU only: ", device.status().message()));
    return;
  }
  LogInfo(absl::StrCat("CUDA device: ", (*device)->description()));
  accelerator_ = std::make_unique<Accelerator>(
      *std::move(device),
      AcceleratorOptions{.min_bytes = config.cuda_min_bytes, .replace_slices = !is_auto}, this);
  kernels_.accelerator = accelerator_.get();
  uses_device_ = true;
}

std::vector<std::string> Backend::names() const {
  if (accelerator_ == nullptr) return {"cpu"};
  if (uses_device_) return {"cuda", "cpu"};
  return {"cpu", "cuda"};
}

void Backend::OnFallback(const absl::Status& why, bool for_good) {
  metrics_.CudaFellBack();
  if (for_good) uses_device_ = false;
  LogWarning(absl::StrCat(why.message(), for_good ? "; computing on the CPU from now on"
                                                  : "; computing on the CPU what does not fit"));
}

}  // namespace attnbias
