// SPDX-License-Identifier: Apache-2.0
#include "core/logits/blas.h"

#include <cblas.h>

namespace attnbias {
namespace {

// The caller's threads are the parallelism. OpenBLAS must be a build with
// threads all the same (Debian's pthread): products of several callers at once
// spoil one another in its serial builds.
void UseOneThread() {
  static const bool once = [] {
    openblas_set_num_threads(1);
    return true;
  }();
  (void)once;
}

template <typename T>
constexpr auto* kGemv = &cblas_sgemv;
template <>
constexpr auto* kGemv<double> = &cblas_dgemv;
template <typename T>
constexpr auto* kGemm = &cblas_sgemm;
template <>
constexpr auto* kGemm<double> = &cblas_dgemm;

blasint Int(int64_t value) { return static_cast<blasint>(value); }

}  // namespace

template <typename T>
void Multiply(const MatrixView<T>& a, const MatrixView<T>& b, bool b_transposed,
              T* out) {
  UseOneThread();
  // One row is a product with a vector, for which b is not repacked.
  if (a.rows == 1 && b_transposed) {
    return kGemv<T>(CblasRowMajor, CblasNoTrans, Int(b.rows), Int(b.columns), 1,
                    b.data, Int(b.stride), a.data, 1, 0, out, 1);
  }
  const int64_t columns = b_transposed ? b.rows : b.columns;
  kGemm<T>(CblasRowMajor, CblasNoTrans,
           b_transposed ? CblasTrans : CblasNoTrans, Int(a.rows), Int(columns),
           Int(a.columns), 1, a.data, Int(a.stride), b.data, Int(b.stride), 0,
           out, Int(columns));
}

template void Multiply(const MatrixView<float>& a, const MatrixView<float>& b,
                       bool b_transposed, float* out);
template void Multiply(const MatrixView<double>& a, const MatrixView<double>& b,
                       bool b_transposed, double* out);

}  // namespace attnbias
