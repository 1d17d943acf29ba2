// SPDX-License-Identifier: Apache-2.0
// Positional logits, row by row: queries are multiplied with each distinct
// vector once, and the products spread over the keys that use it. Nothing of
// shape [queries, keys, head_dim] ever exists.
#ifndef ATTNBIAS_CORE_LOGITS_POSITIONAL_LOGITS_H_
#define ATTNBIAS_CORE_LOGITS_POSITIONAL_LOGITS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/cancellation.h"
#include "core/kernel/cuda/accelerator.h"
#include "core/logits/plan.h"
#include "core/logits/vectors.h"
#include "core/tensor/range.h"

namespace attnbias {

// Rows that have passed LogitsPlan::CheckRows: [num_heads, num_rows,
// input_width] of the spec's data_type, at any alignment.
struct RowBlock {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  const std::byte* data = nullptr;
};

// Immutable; any number of threads may use it at once.
class PositionalLogits {
 public:
  // Makes the vectors. With the errors of MakeVectors.
  static absl::StatusOr<std::unique_ptr<const PositionalLogits>> Create(
      LogitsPlanPtr plan, LogitsResources resources,
      const Cancellation& cancellation);

  const LogitsPlan& plan() const { return *plan_; }

  // Writes lines of the block's answer, which is row-major [num_heads,
  // num_rows, output_width] of the spec's output_data_type; line n is row
  // n % num_rows of head n / num_rows. `out` is aligned to an element.
  //
  // INVALID_ARGUMENT    data: a number, or a sum of products, is not finite;
  //                     weights of masked keys are not read
  // RESOURCE_EXHAUSTED  the budget has no room
  absl::Status Compute(const RowBlock& block, Range lines,
                       std::byte* out) const;

 private:
  // What rows are multiplied with.
  struct Factor {
    const Summand& summand;
    Vectors vectors;
    // On the accelerator, or null.
    std::unique_ptr<DeviceVectors> on_device;
  };

  template <typename Work>
  class TileComputer;

  PositionalLogits(LogitsPlanPtr plan, LogitsResources resources,
                   std::vector<Factor> factors);

  const LogitsPlanPtr plan_;
  const LogitsResources resources_;
  const std::vector<Factor> factors_;
  const int64_t tile_rows_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_LOGITS_POSITIONAL_LOGITS_H_
