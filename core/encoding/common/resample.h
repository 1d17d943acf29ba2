// SPDX-License-Identifier: Apache-2.0
// Resamples the rows of a learned table, which form a line or a grid, as torch's interpolate does,
// but over the rational numbers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attnbias/v1/encodings.pb.h"
#include "core/encoding/encoding.h"
#include "core/numerics/real.h"
#include "core/table/table.h"
#include "core/tensor/positions.h"

namespace attnbias {

// A checked v1::Resample.
struct Resampling {
  struct Axis {
    int64_t source = 1;
    int64_t target = 1;
    // Source rows per target row. The denominator is at most 2^20 or a power of two.
    int64_t numerator = 1;
    __int128 denominator = 1;
    // Aligns the first rows of the source and target instead of their outer edges.
    bool has_corners = false;
    // The filter's unit is one target row instead of one source row.
    bool is_stretched = false;
  };

  // Checks that `spec`, which must be complete, can resample `rows` rows of `columns` values to the
  // sides in `target`. `path` precedes field names in errors.
  static absl::StatusOr<Resampling> Create(absl::string_view path, const v1::Resample& spec,
                                           absl::Span<const int64_t> target, int64_t rows,
                                           int64_t columns);

  int64_t rows() const { return axes[0].target * axes[1].target; }
  // Returns the maximum number of source rows that a target row depends on.
  int64_t Window(const Axis& axis) const;
  // Returns a bound on the memory for one row's weights.
  int64_t bytes() const;

  // A line is a grid with one row.
  std::array<Axis, 2> axes;
  bool is_cubic = false;
  double cubic_a = 0;
  // Drops weights beyond the source instead of assigning them to its last row.
  bool is_cut = false;
};

// Writes the rows of a table; rows after the first `prefix_rows` may be resampled. Each element is
// scaled and rounded once.
class TableRows {
 public:
  TableRows(Table table, std::optional<Resampling> resampling, int64_t prefix_rows,
            const NumberFormat& format)
      : table_(std::move(table)),
        resampling_(std::move(resampling)),
        prefix_rows_(prefix_rows),
        format_(format),
        rounding_(format.scale, format.type) {}

  // Returns Evaluator::batch() for these rows.
  int64_t batch() const;

  // Writes some columns of a row, `stride` bytes apart. Polls ComputeScope.
  void Write(int64_t row, Range columns, int64_t stride, std::byte* out) const;

 private:
  const Table table_;
  const std::optional<Resampling> resampling_;
  const int64_t prefix_rows_;
  const NumberFormat format_;
  const ScaledRounding rounding_;
};

}  // namespace attnbias
