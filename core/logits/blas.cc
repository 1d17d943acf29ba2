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

blasint Int(int64_t value) { return static_cast<blasint>(value); }

}  // namespace

// One row is a product with a vector, for which b is not repacked.
void MultiplyTransposed(const MatrixView<float>& a, const MatrixView<float>& b,
                        float* out) {
  UseOneThread();
  if (a.rows == 1) {
    cblas_sgemv(CblasRowMajor, CblasNoTrans, Int(b.rows), Int(b.columns), 1,
                b.data, Int(b.stride), a.data, 1, 0, out, 1);
    return;
  }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, Int(a.rows), Int(b.rows),
              Int(a.columns), 1, a.data, Int(a.stride), b.data, Int(b.stride),
              0, out, Int(b.rows));
}

void MultiplyTransposed(const MatrixView<double>& a,
                        const MatrixView<double>& b, double* out) {
  UseOneThread();
  if (a.rows == 1) {
    cblas_dgemv(CblasRowMajor, CblasNoTrans, Int(b.rows), Int(b.columns), 1,
                b.data, Int(b.stride), a.data, 1, 0, out, 1);
    return;
  }
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, Int(a.rows), Int(b.rows),
              Int(a.columns), 1, a.data, Int(a.stride), b.data, Int(b.stride),
              0, out, Int(b.rows));
}

void Multiply(const MatrixView<float>& a, const MatrixView<float>& b,
              float* out) {
  UseOneThread();
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, Int(a.rows),
              Int(b.columns), Int(a.columns), 1, a.data, Int(a.stride), b.data,
              Int(b.stride), 0, out, Int(b.columns));
}

void Multiply(const MatrixView<double>& a, const MatrixView<double>& b,
              double* out) {
  UseOneThread();
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, Int(a.rows),
              Int(b.columns), Int(a.columns), 1, a.data, Int(a.stride), b.data,
              Int(b.stride), 0, out, Int(b.columns));
}

}  // namespace attnbias
