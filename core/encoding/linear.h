// SPDX-License-Identifier: Apache-2.0
// A learned linear layer, computed to the same bits everywhere: the products of
// an output are added to its bias in the order of the inputs, each product and
// sum rounded together, once, to F64.
#ifndef ATTNBIAS_CORE_ENCODING_LINEAR_H_
#define ATTNBIAS_CORE_ENCODING_LINEAR_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/kernel/kernels.h"
#include "core/table/table.h"
#include "core/tensor/range.h"

namespace attnbias {

class Linear {
 public:
  // `weight` [outputs, inputs], as torch's Linear has it, and `bias` [outputs].
  Linear(const Table& weight, const std::optional<Table>& bias);

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }

  // Writes some of the outputs for inputs() numbers at `in`.
  void Apply(const double* in, Range outputs, const KernelSet& kernels,
             double* out) const;

 private:
  const int64_t inputs_;
  const int64_t outputs_;
  std::vector<double> weight_;  // [inputs, outputs]
  std::vector<double> bias_;    // [outputs]
};

// The numbers of a table, row-major.
std::vector<double> NumbersOf(const Table& table);

// Refuses numbers beyond F32's range, from which a layer could overflow.
absl::Status CheckWithinF32(absl::string_view field, const Table& table);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_LINEAR_H_
