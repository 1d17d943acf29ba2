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

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/caller.h"
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

class PositionalLogits;
using PositionalLogitsPtr = std::shared_ptr<const PositionalLogits>;

// Immutable; any number of threads may use it at once.
class PositionalLogits {
 public:
  // Makes the vectors, as ForRanges does. With the errors of MakeVectors.
  static void Create(
      LogitsPlanPtr plan, LogitsResources resources, const CallerPtr& caller,
      absl::AnyInvocable<void(absl::StatusOr<PositionalLogitsPtr>)> done);

  const LogitsPlan& plan() const { return *plan_; }

  // Of the budget.
  int64_t memory_bytes() const;

  // Writes lines of the block's answer, as ForRanges does. The answer is
  // row-major [num_heads, num_rows, output_width] of the spec's
  // output_data_type; line n is row n % num_rows of head n / num_rows. `out` is
  // aligned to an element.
  //
  // INVALID_ARGUMENT    data: a number, or a sum of products, is not finite;
  //                     weights of masked keys are not read
  // RESOURCE_EXHAUSTED  the budget has no room
  void Compute(const RowBlock& block, Range lines, std::byte* out,
               CallerPtr caller,
               absl::AnyInvocable<void(absl::Status)> done) const;

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
  class Builder;

  PositionalLogits(LogitsPlanPtr plan, LogitsResources resources,
                   std::vector<Factor> factors);

  const LogitsPlanPtr plan_;
  const LogitsResources resources_;
  const std::vector<Factor> factors_;
  const int64_t tile_rows_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_LOGITS_POSITIONAL_LOGITS_H_
