// SPDX-License-Identifier: Apache-2.0
// Loads the CUDA backend, a library that only programs with a device need.
#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "core/kernel/cuda/device.h"

namespace attnbias {

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice() {
  // Searches the folders of the system and of the build: a name without a folder is not looked up
  // in the working directory. Never closed: code that runs at exit may be part of it.
  void* const backend = dlopen("libattnbias_cuda.so", RTLD_NOW | RTLD_LOCAL);
  void* const open =
      backend == nullptr ? nullptr : dlsym(backend, kOpenCudaDevice);
  if (open == nullptr) {
    return absl::UnavailableError(absl::StrCat(
        "no CUDA device: the CUDA backend is not here: ", dlerror()));
  }
  absl::StatusOr<std::unique_ptr<Device>> device;
  reinterpret_cast<OpenDeviceFunction*>(open)(&device);
  return device;
}

}  // namespace attnbias
