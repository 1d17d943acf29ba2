// SPDX-License-Identifier: Apache-2.0
// Relative position bias of a grid, from a learned table: Swin's (Liu et al.
// 2021), LeViT's of displacements without sign (Graham et al. 2021), and BEiT's
// with a class token (Bao et al. 2021).

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "core/base/invalid.h"
#include "core/encoding/common/bias_table.h"
#include "core/encoding/common/table_checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"

namespace attnbias {
namespace {

// At the table's end: class to tokens, tokens to class, class to itself.
constexpr int64_t kClassRows = 3;

// Returns the row of the table at a coordinate, which counts key - query.
int64_t RowAt(int64_t at, const Grid& grid, bool symmetric, bool from_query) {
  if (symmetric) {
    const int64_t down = at / grid.block_width() - (grid.height - 1);
    const int64_t right = at % grid.block_width() - (grid.width - 1);
    return std::abs(down) * grid.width + std::abs(right);
  }
  return from_query ? grid.coordinates().end - 1 - at : at;
}

absl::StatusOr<Encoding> DescribeGridRelative(const v1::GridRelative& spec,
                                              const Tables& tables) {
  if (spec.window_size() != 2) {
    return Invalid("grid_relative.window: got ", spec.window_size(),
                   " numbers, want 2, rows and columns");
  }
  const Grid grid = {spec.window(0), spec.window(1)};
  const std::optional<Table> table = tables.Get(spec.table());
  const bool symmetric = spec.symmetric();
  const bool from_query = spec.sign() == v1::RELATIVE_SIGN_QUERY_MINUS_KEY;
  const int64_t rows = symmetric ? grid.tokens() : grid.coordinates().size();
  const std::string rows_name =
      absl::StrCat("rows ", symmetric ? "Wh Ww" : "(2 Wh - 1)(2 Ww - 1)",
                   spec.class_token() ? " + 3" : "");
  Encoding encoding{
      .structure = Structure::kBlockToeplitz2D,
      .lanes = spec.num_heads(),
      .has_heads = true,
      .domain = grid.coordinates(),
      .has_buckets = true,
      .bias_status =
          CheckTable("grid_relative.table", table,
                     {{rows + (spec.class_token() ? kClassRows : 0), rows_name},
                      {spec.num_heads(), "heads (num_heads)"}}),
      .grid = grid,
      .prepare = [=](const NumberFormat& format, const KernelSet& /*kernels*/) {
        return std::make_unique<BiasTableEvaluator>(
            table,
            [=](int64_t at) {
              return RowSpan{RowAt(at, grid, symmetric, from_query), at + 1};
            },
            format);
      }};
  if (spec.class_token()) {
    encoding.write_border = BorderIn(table, {rows, rows + 1, rows + 2});
  }
  return encoding;
}

const EncodingRegistration kGridRelative(
    v1::TensorSpec::kGridRelativeFieldNumber, &DescribeGridRelative);

}  // namespace
}  // namespace attnbias
