// SPDX-License-Identifier: Apache-2.0
#include "core/kernel/cuda/cublas.h"

#include <dlfcn.h>

#include <optional>
#include <string>

namespace attnbias {
namespace {

// The system's, or the one that lay beside the headers.
void* Open() {
  const std::string name = "libcublas.so." + std::to_string(CUBLAS_VER_MAJOR);
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  return dlopen(ATTNBIAS_CUBLAS_LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

std::optional<Cublas> Load() {
  void* const library = Open();
  Cublas cublas;
  if (library != nullptr && Find(library, "cublasCreate_v2", &cublas.create) &&
      Find(library, "cublasDestroy_v2", &cublas.destroy) &&
      Find(library, "cublasSetStream_v2", &cublas.set_stream) &&
      Find(library, "cublasSetMathMode", &cublas.set_math_mode) &&
      Find(library, "cublasGetStatusString", &cublas.status_string) &&
      Find(library, "cublasSgemm_v2", &cublas.sgemm) &&
      Find(library, "cublasDgemm_v2", &cublas.dgemm)) {
    return cublas;
  }
  return std::nullopt;
}

}  // namespace

const Cublas* LoadCublas() {
  static const std::optional<Cublas> cublas = Load();
  return cublas.has_value() ? &*cublas : nullptr;
}

}  // namespace attnbias
