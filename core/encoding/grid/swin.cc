// SPDX-License-Identifier: Apache-2.0
// Swin's relative position bias (Liu et al. 2021): one learned number for each
// displacement inside a window, and head. BEiT's (Bao et al. 2021) is the same
// and three more numbers a head, for a class token.

#include <memory>
#include <string>

#include "core/encoding/common/bias_table.h"
#include "core/encoding/common/table_checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"

namespace attnbias {
namespace {

// At the table's end: class to tokens, tokens to class, class to itself.
constexpr int64_t kBorderRows = 3;

template <typename Message>
Encoding Describe(const Message& spec, const std::optional<Table>& table,
                  absl::string_view field, int64_t border_rows) {
  const Grid grid = {spec.window_height(), spec.window_width()};
  const int64_t displacements = grid.coordinates().size();
  return Encoding{
      .structure = Structure::kBlockToeplitz2D,
      .lanes = spec.num_heads(),
      .has_heads = true,
      .domain = grid.coordinates(),
      .has_buckets = true,
      .bias_status = CheckTable(
          field, table,
          {{displacements + border_rows,
            border_rows == 0 ? "displacements (2 Wh - 1)(2 Ww - 1)"
                             : "displacements (2 Wh - 1)(2 Ww - 1) + 3"},
           {spec.num_heads(), "heads (num_heads)"}}),
      .grid = grid,
      // The table counts query - key where grids count key - query: it is read
      // from behind.
      .prepare = [table, last = displacements - 1](
                     const NumberFormat& format, const KernelSet& /*kernels*/) {
        return std::make_unique<BiasTableEvaluator>(
            table,
            [last](int64_t at) {
              return RowSpan{last - at, at + 1};
            },
            format);
      }};
}

absl::StatusOr<Encoding> DescribeSwin(const v1::Swin& spec,
                                      const Tables& tables) {
  return Describe(spec, tables.Get(spec.table()), "swin.table", 0);
}

absl::StatusOr<Encoding> DescribeBeit(const v1::Beit& spec,
                                      const Tables& tables) {
  const std::optional<Table> table = tables.Get(spec.table());
  Encoding encoding = Describe(spec, table, "beit.table", kBorderRows);
  const int64_t first = encoding.domain.end;
  encoding.write_border = BorderIn(table, {first, first + 1, first + 2});
  return encoding;
}

const EncodingRegistration kSwin(v1::TensorSpec::kSwinFieldNumber,
                                 &DescribeSwin);
const EncodingRegistration kBeit(v1::TensorSpec::kBeitFieldNumber,
                                 &DescribeBeit);

}  // namespace
}  // namespace attnbias
