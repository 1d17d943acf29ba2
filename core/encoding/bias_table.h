// SPDX-License-Identifier: Apache-2.0
// Learned biases: one number for each row of a table and each head; or, for
// values BUCKETS, the row's own index.
#ifndef ATTNBIAS_CORE_ENCODING_BIAS_TABLE_H_
#define ATTNBIAS_CORE_ENCODING_BIAS_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "core/encoding/encoding.h"
#include "core/table/table.h"
#include "core/tensor/data_type.h"

namespace attnbias {

class BiasTable {
 public:
  // `table` [rows, heads], or [rows, 1] for all heads alike; without one, for
  // indices alone.
  BiasTable(std::optional<Table> table, double scale)
      : table_(std::move(table)), scale_(scale) {}

  // Writes what stands at a row: its bias times the scale, rounded once, or as
  // I32 its index.
  void Write(int64_t row, int64_t head, DataType type, std::byte* out) const;

 private:
  std::optional<Table> table_;
  double scale_;
};

// Coordinates from one on that read the same row, up to `end`.
struct RowRun {
  int64_t row;
  int64_t end;
};

class BiasTableEvaluator final : public Evaluator {
 public:
  using RunFrom = std::function<RowRun(int64_t coordinate)>;

  BiasTableEvaluator(BiasTable table, RunFrom run_from, DataType type)
      : table_(std::move(table)), run_from_(std::move(run_from)), type_(type) {}

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override;

 private:
  const BiasTable table_;
  const RunFrom run_from_;
  const DataType type_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_BIAS_TABLE_H_
