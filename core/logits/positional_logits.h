// SPDX-License-Identifier: Apache-2.0
// Positional logits, row by row: queries are multiplied with each distinct
// vector once, and the products spread over the keys that use it. Nothing of
// shape [queries, keys, head_dim] ever exists.
#ifndef ATTNBIAS_CORE_LOGITS_POSITIONAL_LOGITS_H_
#define ATTNBIAS_CORE_LOGITS_POSITIONAL_LOGITS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
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
  // Rows of one head, counted in the block, and where their answer goes.
  struct Tile;
  // What rows are multiplied with.
  struct Factor {
    const Summand& summand;
    Vectors vectors;
    // On the accelerator, or null.
    std::unique_ptr<DeviceVectors> on_device;
  };

  PositionalLogits(LogitsPlanPtr plan, LogitsResources resources,
                   std::vector<Factor> factors);

  template <typename Work>
  absl::Status ComputeTile(const RowBlock& block, const Tile& tile) const;
  template <typename Work>
  absl::Status Multiply(const RowBlock& block, const Tile& tile) const;
  // Writes, for each of `rows`, every key's sum of products with what it uses.
  template <typename Work>
  absl::Status AddProducts(int64_t head, Range rows, const Work* queries,
                           Work* sums) const;
  template <typename Work>
  absl::Status Weigh(const RowBlock& block, const Tile& tile) const;
  template <typename Work>
  absl::Status ReadQueries(const RowBlock& block, const Tile& tile,
                           Work* queries) const;
  template <typename Work>
  absl::Status Read(const RowBlock& block, int64_t head, int64_t row,
                    Range elements, Work* out) const;
  // Scales products and rounds them to the output type, perhaps in place.
  template <typename Work>
  absl::Status Round(Work* products, int64_t count, std::byte* out) const;
  void Spread(const Stretches& stretches, const std::byte* products,
              int64_t first_vector, std::byte* out) const;
  // A VectorProduct, by the accelerator where it will, else by the BLAS.
  template <typename Work>
  void MultiplyVectors(const Factor& factor, int64_t head, Range range,
                       int64_t num_rows, bool transposed, const Work* input,
                       Work* out) const;
  // Vectors that any key of these rows uses.
  Range VectorsOf(const Factor& factor, Range rows) const;

  const LogitsPlanPtr plan_;
  const LogitsResources resources_;
  const std::vector<Factor> factors_;
  const int64_t tile_rows_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_LOGITS_POSITIONAL_LOGITS_H_
