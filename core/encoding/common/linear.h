// SPDX-License-Identifier: Apache-2.0
// A learned linear layer over a batch of inputs, computed to the same bits
// everywhere: the products of an output are added to its bias in the order of
// the inputs, each product and sum rounded together, once, to F64. Vectors go
// across the batch, never along a sum.
#ifndef ATTNBIAS_CORE_ENCODING_COMMON_LINEAR_H_
#define ATTNBIAS_CORE_ENCODING_COMMON_LINEAR_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/kernel/kernel_set.h"
#include "core/table/table.h"
#include "core/tensor/range.h"

namespace attnbias {

// Features are rows of so many numbers, one for each member of a batch.
inline constexpr int64_t kBatch = 64;

// The layers' numbers stay below this, so that neither a square nor a sum of
// squares overflows.
inline constexpr double kMostReach = 1e140;

class Linear {
 public:
  // `weight` [outputs, inputs], as torch's Linear has it, and `bias` [outputs],
  // zeros where there is none.
  Linear(const Table& weight, const std::optional<Table>& bias)
      : Linear(weight, bias, {0, weight.rows()}) {}
  // Only some of its outputs.
  Linear(const Table& weight, const std::optional<Table>& bias, Range outputs);

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

// The numbers of a table, row-major.
std::vector<double> NumbersOf(const Table& table);

// The largest magnitude that such a layer gives for inputs of at most `reach`.
double ReachOf(const Table& weight, const std::optional<Table>& bias,
               double reach);

// Refuses numbers beyond F32's range, from which a layer could overflow.
absl::Status CheckWithinF32(absl::string_view field, const Table& table);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_COMMON_LINEAR_H_
