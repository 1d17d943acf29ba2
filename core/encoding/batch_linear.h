// SPDX-License-Identifier: Apache-2.0
// A learned linear layer over a batch of inputs, computed to the same bits
// everywhere: the products of an output are added to its bias in the order of
// the inputs, each product and sum rounded together, once, to F64. Vectors go
// across the batch, never along a sum.
#ifndef ATTNBIAS_CORE_ENCODING_BATCH_LINEAR_H_
#define ATTNBIAS_CORE_ENCODING_BATCH_LINEAR_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "core/kernel/kernels.h"
#include "core/table/table.h"
#include "core/tensor/range.h"

namespace attnbias {

// Features are rows of so many numbers, one for each member of a batch.
inline constexpr int64_t kBatch = 64;

// The layers' numbers stay below this, so that neither a square nor a sum of
// squares overflows.
inline constexpr double kMostReach = 1e140;

class BatchLinear {
 public:
  // `weight` [outputs, inputs], as torch's Linear has it, and `bias` [outputs],
  // zeros where there is none.
  BatchLinear(const Table& weight, const std::optional<Table>& bias);

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }

  // Writes some of the outputs, [outputs.size(), kBatch], of `in` [inputs(),
  // kBatch].
  void Apply(const double* in, Range outputs, const KernelSet& kernels,
             double* out) const;

 private:
  const int64_t inputs_;
  const int64_t outputs_;
  std::vector<double> weight_;  // [outputs, inputs]
  std::vector<double> bias_;    // [outputs]
};

// The largest magnitude that such a layer gives for inputs of at most `reach`.
double ReachOf(const Table& weight, const std::optional<Table>& bias,
               double reach);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_BATCH_LINEAR_H_
