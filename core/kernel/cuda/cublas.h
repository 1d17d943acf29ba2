// SPDX-License-Identifier: Apache-2.0
// cuBLAS, loaded for the first product: if it were linked, opening a device
// would take 200 MB and a fifth of a second even where nothing is multiplied.
#ifndef ATTNBIAS_CORE_KERNEL_CUDA_CUBLAS_H_
#define ATTNBIAS_CORE_KERNEL_CUDA_CUBLAS_H_

#include <cublas_v2.h>

namespace attnbias {

// cuBLAS's own functions.
struct Cublas {
  decltype(&cublasCreate_v2) create;
  decltype(&cublasDestroy_v2) destroy;
  decltype(&cublasSetStream_v2) set_stream;
  decltype(&cublasSetMathMode) set_math_mode;
  decltype(&cublasGetStatusString) status_string;
  decltype(&cublasSgemm_v2) sgemm;
  decltype(&cublasDgemm_v2) dgemm;
};

// Null where the library is not on this machine.
const Cublas* LoadCublas();

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_KERNEL_CUDA_CUBLAS_H_
