// SPDX-License-Identifier: Apache-2.0
// Swin's learned table, which counts query - key where our grids count key -
// query: it is read from behind. BEiT's is the same with rows for a border.
#ifndef ATTNBIAS_CORE_ENCODING_SWIN_TABLE_H_
#define ATTNBIAS_CORE_ENCODING_SWIN_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/encoding/encoding.h"
#include "core/table/table.h"
#include "core/tensor/data_type.h"

namespace attnbias {

class SwinTable {
 public:
  // Without a table the numbers are the rows' own indices.
  SwinTable(Grid grid, std::optional<Table> table, double scale)
      : grid_(grid), table_(std::move(table)), scale_(scale) {}

  Grid grid() const { return grid_; }
  Range coordinates() const {
    return {0, grid_.block_height() * grid_.block_width()};
  }
  int64_t RowAt(int64_t coordinate) const {
    return coordinates().end - 1 - coordinate;
  }

  // Writes the number at a row and a head, rounded once.
  void Write(int64_t row, int64_t head, DataType type, std::byte* out) const;

 private:
  Grid grid_;
  std::optional<Table> table_;
  double scale_;
};

// The grid's numbers, without a border.
class SwinTableEvaluator final : public Evaluator {
 public:
  SwinTableEvaluator(SwinTable table, DataType type)
      : table_(std::move(table)), type_(type) {}

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override;

 private:
  const SwinTable table_;
  const DataType type_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SWIN_TABLE_H_
