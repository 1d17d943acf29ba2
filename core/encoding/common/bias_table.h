// SPDX-License-Identifier: Apache-2.0
// Learned biases: one number for each row of a table and each head; or, for values BUCKETS, the
// row's own index.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "core/encoding/encoding.h"
#include "core/table/table.h"
#include "core/tensor/range.h"

namespace attnbias {

// A row of a table, and the end of the consecutive coordinates that read it.
struct RowSpan {
  int64_t row;
  int64_t end;
};

// Clips a relative position to `reach`. The `row` of the result is the clipped position.
RowSpan ClippedFrom(int64_t relative_position, Range reach);

// Prepares the numbers of `table`, [rows, heads] or [rows, 1] for all heads alike; for indices
// alone there is none. `span_from` returns the row of a coordinate.
EvaluatorPtr PrepareBiasTable(std::optional<Table> table,
                              std::function<RowSpan(int64_t coordinate)> span_from,
                              const NumberFormat& format);

// Returns an Encoding's write_border whose numbers stand in these rows of the table.
std::function<void(const NumberFormat& format, Range lanes, std::byte* out)> BorderIn(
    std::optional<Table> table, const std::array<int64_t, 3>& rows);

}  // namespace attnbias
