// SPDX-License-Identifier: Apache-2.0
// Computes positional logits row by row: queries are multiplied by each distinct vector once, and
// the products are distributed to the keys that use it. No tensor with shape [queries, keys,
// head_dim] is materialized.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/executor.h"
#include "core/cache/byte_budget.h"
#include "core/kernel/cuda/accelerator.h"
#include "core/kernel/kernel_set.h"
#include "core/logits/plan.h"
#include "core/tensor/positions.h"

namespace attnbias {

// Resources of a computation. They must outlive it.
struct LogitsResources {
  Executor& executor;
  const KernelSet& kernels;
  // Returns RESOURCE_EXHAUSTED if the budget has no room.
  std::function<absl::StatusOr<BudgetedBuffer>(int64_t bytes)> allocate;
  // Same as `allocate`, for memory allocated elsewhere.
  std::function<absl::StatusOr<ByteBudget::Reservation>(int64_t bytes)> reserve;
};

// Rows that have passed LogitsPlan::CheckRows: [num_heads, num_rows, input_width] elements of the
// spec's data_type, at any alignment.
struct RowBlock {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  const std::byte* data = nullptr;
};

class PositionalLogits;
using PositionalLogitsPtr = std::shared_ptr<const PositionalLogits>;

// Immutable; any number of threads may use it concurrently.
class PositionalLogits {
 public:
  // Computes the vectors; asynchronous like ForRanges.
  //
  // RESOURCE_EXHAUSTED  the budget has no room
  // CANCELLED           the caller has cancelled
  static void Create(LogitsPlanPtr plan, LogitsResources resources, const CallerPtr& caller,
                     absl::AnyInvocable<void(absl::StatusOr<PositionalLogitsPtr>)> done);

  const LogitsPlan& plan() const { return *plan_; }

  // Bytes of the budget that this object holds.
  int64_t memory_bytes() const;

  // Writes lines of the block's result; asynchronous like ForRanges. The result is row-major
  // [num_heads, num_rows, output_width], with elements of the spec's output_data_type; line n is
  // row n % num_rows of head n / num_rows. `out` is aligned to an element.
  //
  // INVALID_ARGUMENT    data: a value, or a sum of products, is not finite; weights for masked keys
  //                     are not read
  // RESOURCE_EXHAUSTED  the budget has no room
  void Compute(const RowBlock& block, Range lines, std::byte* out, CallerPtr caller,
               absl::AnyInvocable<void(absl::Status)> done) const;

 private:
  // The vectors of a component, by which rows are multiplied.
  struct Factor {
    const TermComponent& component;
    // Elements of the plan's work_type(); a head's vector n begins at
    // head * head_stride + n * stride.
    BudgetedBuffer memory;
    int64_t head_stride = 0;
    int64_t stride = 0;
    // Copy on the accelerator, or null.
    std::unique_ptr<DeviceVectors> on_device;
  };

  template <typename Work>
  class TileComputer;
  class Builder;

  PositionalLogits(LogitsPlanPtr plan, LogitsResources resources, std::vector<Factor> factors);

  const LogitsPlanPtr plan_;
  const LogitsResources resources_;
  std::vector<Factor> factors_;
  const int64_t tile_rows_;
};

}  // namespace attnbias
