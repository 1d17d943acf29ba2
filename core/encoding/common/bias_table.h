// SPDX-License-Identifier: Apache-2.0
// Learned biases: one number for each row of a table and each head; or, for
// values BUCKETS, the row's own index.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "core/encoding/encoding.h"
#include "core/table/table.h"
#include "core/tensor/range.h"

namespace attnbias {

// Coordinates from one on that read the same row of a table, up to `end`.
struct RowSpan {
  int64_t row;
  int64_t end;
};

// Those that count as the same relative position, which is the `row`: beyond
// `reach` its first or last goes on.
RowSpan ClippedFrom(int64_t relative_position, Range reach);

class BiasTableEvaluator final : public Evaluator {
 public:
  using SpanFrom = std::function<RowSpan(int64_t coordinate)>;

  // `table` [rows, heads], or [rows, 1] for all heads alike; without one, for
  // indices alone.
  BiasTableEvaluator(std::optional<Table> table, SpanFrom span_from,
                     const NumberFormat& format)
      : table_(std::move(table)),
        span_from_(std::move(span_from)),
        format_(format) {}

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override;

 private:
  const std::optional<Table> table_;
  const SpanFrom span_from_;
  const NumberFormat format_;
};

// An Encoding's write_border whose numbers stand in these rows of the table.
std::function<void(const NumberFormat& format, Range lanes, std::byte* out)>
BorderIn(std::optional<Table> table, const std::array<int64_t, 3>& rows);

}  // namespace attnbias
