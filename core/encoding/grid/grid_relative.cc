// SPDX-License-Identifier: Apache-2.0
// Relative position bias in a grid, from a learned table: Swin (Liu et al. 2021), LeViT with
// unsigned displacements (Graham et al. 2021), BEiT with a class token (Bao et al. 2021), and Video
// Swin with frames (Liu et al. 2022). The table may be resampled from another window.

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/encoding/common/bias_table.h"
#include "core/encoding/common/resample.h"
#include "core/encoding/encoding.h"
#include "core/request/rules.h"
#include "core/table/table.h"

namespace attnbias {
namespace {

// Rows at the table's end: class to tokens, tokens to class, class to itself.
constexpr int64_t kClassRows = 3;

// Returns the row of a symmetric table for a coordinate.
int64_t RowOfMagnitudes(int64_t at, const Grid& grid) {
  int64_t row = 0;
  int64_t digit = 1;
  for (auto side = grid.sides.rbegin(); side != grid.sides.rend(); ++side) {
    row += std::abs(at % (2 * *side - 1) - (*side - 1)) * digit;
    at /= 2 * *side - 1;
    digit *= *side;
  }
  return row;
}

// Checks a resampling of all table rows except the class token's.
absl::StatusOr<Resampling> ResamplingOf(const v1::GridRelative& spec, const Tables& tables,
                                        absl::Span<const int64_t> target) {
  const std::string path = "grid_relative.resample";
  if (target.size() > 2) {
    return Invalid(path, ": got a window of ", target.size(),
                   " axes, want at most 2: resample the table before you send it");
  }
  v1::Resample resample = spec.resample();
  // Requests for BUCKETS ignore the status.
  ATTNBIAS_RETURN_IF_ERROR(Complete(path, /*buckets=*/false, tables, resample));
  if (resample.target_size() > 0) {
    return Invalid(path, ".target: got ", resample.target_size(),
                   " numbers, want none: window gives the sides");
  }
  if (resample.prefix_rows() != 0) {
    return Invalid(path, ".prefix_rows: got ", resample.prefix_rows(),
                   ", want none: class_token keeps the last rows");
  }
  const Table table = *tables.Get(spec.table());
  const int64_t rows = table.rows() - (spec.class_token() ? kClassRows : 0);
  if (rows < 1) {
    return Invalid("grid_relative.table: got ", table.rows(),
                   " rows, want more than the 3 that a class token takes");
  }
  return Resampling::Create(path, resample, target, rows, table.columns());
}

absl::StatusOr<Encoding> DescribeGridRelative(const v1::GridRelative& spec, const Tables& tables) {
  const Grid grid = {{spec.window().begin(), spec.window().end()}};
  const std::optional<Table> table = tables.Get(spec.table());
  const bool symmetric = spec.symmetric();
  // Coordinates are key - query.
  const bool from_query = spec.sign() == v1::RELATIVE_SIGN_QUERY_MINUS_KEY;
  const int64_t rows = symmetric ? grid.tokens() : grid.coordinates().size();
  const auto row_of = [=](int64_t at) {
    if (symmetric) return RowOfMagnitudes(at, grid);
    return from_query ? rows - 1 - at : at;
  };
  const std::vector<int64_t> sides = symmetric ? grid.sides : grid.block();
  const int64_t all_rows = rows + (spec.class_token() ? kClassRows : 0);
  std::optional<Resampling> resampling;
  absl::Status status;
  if (spec.has_resample() && table.has_value()) {
    const auto made = ResamplingOf(spec, tables, sides);
    status = made.status();
    if (made.ok()) resampling = *made;
  } else if (table.has_value() && table->rows() != all_rows) {
    status =
        Invalid("grid_relative.table: got ", table->rows(), " rows, want ", all_rows, " = ",
                absl::StrJoin(sides, " x "), spec.class_token() ? " + 3" : "", " without resample");
  }
  // First of the class token's rows, which are the table's last.
  const int64_t class_row = resampling.has_value() ? table->rows() - kClassRows : rows;
  Encoding encoding{
      .structure = Structure::kBlockToeplitz,
      .lanes = spec.num_heads(),
      .has_heads = true,
      .domain = grid.coordinates(),
      .has_buckets = true,
      .bias_status = status,
      .grid = grid,
      .evaluator_bytes = resampling.has_value() ? resampling->bytes() : 0,
      .prepare = [=](const NumberFormat& format, const KernelSet& /*kernels*/) {
        if (!resampling.has_value() || format.type == DataType::kI32) {
          const auto span_from = [row_of](int64_t at) { return RowSpan{row_of(at), at + 1}; };
          return PrepareTable(table, span_from, format);
        }
        const TableRows resampled(*table, resampling, /*prefix_rows=*/0, format);
        const int64_t bytes = SizeOf(format.type);
        const auto fill = [=](const Block& block, std::byte* out, int64_t lane_stride_bytes) {
          for (int64_t at = block.span.begin; at < block.span.end; ++at) {
            resampled.Write(row_of(at), block.lanes, lane_stride_bytes, out);
            out += bytes;
          }
        };
        return MakeEvaluator(fill, resampled.batch());
      }};
  if (spec.class_token()) {
    encoding.write_border = [=](const NumberFormat& format, Range lanes, std::byte* out) {
      const int64_t row = format.type == DataType::kI32 ? rows : class_row;
      BorderIn(table, {row, row + 1, row + 2})(format, lanes, out);
    };
  }
  return encoding;
}

const EncodingRegistration kGridRelative(v1::TensorSpec::kGridRelativeFieldNumber,
                                         &DescribeGridRelative);

}  // namespace
}  // namespace attnbias
