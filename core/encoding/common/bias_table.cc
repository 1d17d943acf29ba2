// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/common/bias_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/encoding/encoding.h"
#include "core/numerics/rounding.h"
#include "core/tensor/data_type.h"

namespace attnbias {
namespace {

// Writes the bias of a row, or its index if the type is I32.
void WriteBias(const std::optional<Table>& table, int64_t row, int64_t head,
               const NumberFormat& format, std::byte* out) {
  if (format.type == DataType::kI32) {
    const auto index = static_cast<int32_t>(row);
    std::memcpy(out, &index, sizeof(index));
  } else {
    const int64_t column = table->columns() == 1 ? 0 : head;
    RoundProduct(table->At(row, column), format.scale, format.type, out);
  }
}

}  // namespace

RowSpan ClippedFrom(int64_t relative_position, Range reach) {
  const int64_t clipped = std::clamp(relative_position, reach.begin, reach.end - 1);
  if (clipped > relative_position) return {clipped, reach.begin};
  if (clipped < relative_position) return {clipped, kRelativePositions.end};
  return {clipped, relative_position + 1};
}

EvaluatorPtr PrepareBiasTable(std::optional<Table> table,
                              std::function<RowSpan(int64_t coordinate)> span_from,
                              const NumberFormat& format) {
  return MakeEvaluator([table = std::move(table), span_from = std::move(span_from), format](
                           const Block& block, std::byte* out, int64_t lane_stride_bytes) {
    for (int64_t at = block.span.begin; at < block.span.end;) {
      const RowSpan span = span_from(at);
      const int64_t end = std::min(span.end, block.span.end);
      std::byte* to = out + (at - block.span.begin) * SizeOf(format.type);
      for (int64_t lane = block.lanes.begin; lane < block.lanes.end; ++lane) {
        std::byte value[sizeof(double)];
        WriteBias(table, span.row, lane, format, value);
        RepeatElement(format.type, value, end - at, to);
        to += lane_stride_bytes;
      }
      at = end;
    }
  });
}

std::function<void(const NumberFormat& format, Range lanes, std::byte* out)> BorderIn(
    std::optional<Table> table, const std::array<int64_t, 3>& rows) {
  return [table = std::move(table), rows](const NumberFormat& format, Range lanes, std::byte* out) {
    for (int64_t lane = lanes.begin; lane < lanes.end; ++lane) {
      for (const int64_t row : rows) {
        WriteBias(table, row, lane, format, out);
        out += SizeOf(format.type);
      }
    }
  };
}

}  // namespace attnbias
