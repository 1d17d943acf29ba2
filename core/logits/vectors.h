// SPDX-License-Identifier: Apache-2.0
// The vectors that queries are multiplied with; never one for each pair.
#ifndef ATTNBIAS_CORE_LOGITS_VECTORS_H_
#define ATTNBIAS_CORE_LOGITS_VECTORS_H_

#include <cstdint>
#include <functional>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "core/base/caller.h"
#include "core/base/executor.h"
#include "core/cache/band.h"
#include "core/cache/byte_budget.h"
#include "core/kernel/kernel_set.h"
#include "core/logits/plan.h"

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
// whatever that held: by the system's BLAS, on the calling thread alone. T is
// float or double.
template <typename T>
void Multiply(const MatrixView<T>& a, const MatrixView<T>& b, bool b_transposed,
              T* out);

// What computing takes from its surroundings. The referents outlive it.
struct LogitsResources {
  Executor& executor;
  const KernelSet& kernels;
  // RESOURCE_EXHAUSTED when there is no room.
  std::function<absl::StatusOr<BudgetedBuffer>(int64_t bytes)> allocate;
  // The same for memory from elsewhere.
  std::function<absl::StatusOr<ByteBudget::Reservation>(int64_t bytes)> reserve;
};

struct Vectors {
  BudgetedBuffer memory;
  // In numbers of the plan's work_type(); a head's vector n begins at
  // head * head_stride + n * stride.
  int64_t head_stride = 0;
  int64_t stride = 0;

  template <typename Work>
  MatrixView<Work> Of(int64_t head, Range vectors, int64_t width) const {
    const auto* data = reinterpret_cast<const Work*>(memory.bytes.data());
    return {data + head * head_stride + vectors.begin * stride, vectors.size(),
            width, stride};
  }
};

// Makes those of one of the plan's summands, as ForRanges does.
//
// RESOURCE_EXHAUSTED  the budget has no room
// CANCELLED           the caller wants no more
//
// The plan, the summand, which is one of it, and the resources outlive the call
// of `done`.
void MakeVectors(const LogitsPlan& plan, const Summand& summand,
                 const LogitsResources& resources, CallerPtr caller,
                 absl::AnyInvocable<void(absl::StatusOr<Vectors>)> done);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_LOGITS_VECTORS_H_
