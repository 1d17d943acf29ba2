// SPDX-License-Identifier: Apache-2.0
// Learned biases: one number for each row of a table and each head; or, for
// values BUCKETS, the row's own index.
#ifndef ATTNBIAS_CORE_ENCODING_COMMON_BIAS_TABLE_H_
#define ATTNBIAS_CORE_ENCODING_COMMON_BIAS_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "core/encoding/common/row_run.h"
#include "core/encoding/evaluator.h"
#include "core/table/table.h"

namespace attnbias {

class BiasTable {
 public:
  // `table` [rows, heads], or [rows, 1] for all heads alike; without one, for
  // indices alone.
  explicit BiasTable(std::optional<Table> table) : table_(std::move(table)) {}

  // Writes what stands at a row: its bias, or as I32 its index.
  void Write(int64_t row, int64_t head, const NumberFormat& format,
             std::byte* out) const;

 private:
  std::optional<Table> table_;
};

class BiasTableEvaluator final : public Evaluator {
 public:
  using RunFrom = std::function<RowRun(int64_t coordinate)>;

  BiasTableEvaluator(std::optional<Table> table, RunFrom run_from,
                     const NumberFormat& format)
      : table_(std::move(table)),
        run_from_(std::move(run_from)),
        format_(format) {}

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override;

 private:
  const BiasTable table_;
  const RunFrom run_from_;
  const NumberFormat format_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_COMMON_BIAS_TABLE_H_
