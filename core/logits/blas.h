// SPDX-License-Identifier: Apache-2.0
// Matrix products by the system's BLAS, on the calling thread alone.
#ifndef ATTNBIAS_CORE_LOGITS_BLAS_H_
#define ATTNBIAS_CORE_LOGITS_BLAS_H_

#include <cstdint>

namespace attnbias {

// Row-major; row i begins at data + i * stride. Lengths and stride fit 31 bits.
template <typename T>
struct MatrixView {
  const T* data;
  int64_t rows;
  int64_t columns;
  int64_t stride;
};

// Writes a b, or a b^T where `b_transposed`, row-major without holes, to `out`,
// whatever that held. T is float or double.
template <typename T>
void Multiply(const MatrixView<T>& a, const MatrixView<T>& b, bool b_transposed,
              T* out);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_LOGITS_BLAS_H_
