// SPDX-License-Identifier: Apache-2.0
// Stands in for cuda_device.cc where no toolkit was found.
#include "core/kernel/cuda/device.h"

namespace attnbias {

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice() {
  return absl::UnavailableError(
      "no CUDA device: this binary was built without CUDA");
}

}  // namespace attnbias
