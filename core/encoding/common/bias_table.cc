// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/common/bias_table.h"

#include <algorithm>
#include <cstring>

#include "core/numerics/rounding.h"
#include "core/tensor/element.h"

namespace attnbias {

void BiasTable::Write(int64_t row, int64_t head, const NumberFormat& format,
                      std::byte* out) const {
  if (format.type == DataType::kI32) {
    const auto index = static_cast<int32_t>(row);
    std::memcpy(out, &index, sizeof(index));
  } else {
    const int64_t column = table_->columns() == 1 ? 0 : head;
    RoundProduct(table_->At(row, column), format.scale, format.type, out);
  }
}

void BiasTableEvaluator::Fill(const Block& block, std::byte* out,
                              int64_t lane_stride_bytes) const {
  for (int64_t at = block.span.begin; at < block.span.end;) {
    const RowRun run = run_from_(at);
    const int64_t end = std::min(run.end, block.span.end);
    std::byte* to = out + (at - block.span.begin) * SizeOf(format_.type);
    for (int64_t lane = block.lanes.begin; lane < block.lanes.end; ++lane) {
      std::byte value[sizeof(double)];
      table_.Write(run.row, lane, format_, value);
      RepeatElement(format_.type, value, end - at, to);
      to += lane_stride_bytes;
    }
    at = end;
  }
}

}  // namespace attnbias
