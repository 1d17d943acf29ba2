// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/swin_table.h"

#include <cstring>

#include "core/numerics/rounding.h"

namespace attnbias {

void SwinTable::Write(int64_t row, int64_t head, DataType type,
                      std::byte* out) const {
  if (table_.has_value()) {
    return RoundProduct(table_->At(row, head), scale_, type, out);
  }
  const auto index = static_cast<int32_t>(row);
  std::memcpy(out, &index, sizeof(index));
}

void SwinTableEvaluator::Fill(const Block& block, std::byte* out,
                              int64_t lane_stride_bytes) const {
  for (int64_t lane = block.lanes.begin; lane < block.lanes.end; ++lane) {
    std::byte* element = out + (lane - block.lanes.begin) * lane_stride_bytes;
    for (int64_t at = block.span.begin; at < block.span.end; ++at) {
      table_.Write(table_.RowAt(at), lane, type_, element);
      element += SizeOf(type_);
    }
  }
}

}  // namespace attnbias
