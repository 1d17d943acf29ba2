// SPDX-License-Identifier: Apache-2.0
// Learned absolute positions: rows of a table, perhaps stretched to another
// length.
#include "core/encoding/spec/learned_absolute.h"

#include <cstring>

#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "core/encoding/common/interpolation.h"
#include "core/encoding/common/table_checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

class LearnedAbsoluteEvaluator final : public Evaluator {
 public:
  LearnedAbsoluteEvaluator(const LearnedAbsoluteSpec& spec,
                           const NumberFormat& format)
      : spec_(spec),
        table_(*spec.table),
        scale_(format.scale),
        type_(format.type),
        interpolator_(format.scale, format.type) {}

  void Fill(const Block& block, std::byte* out,
            int64_t /*lane_stride_bytes*/) const override {
    const int64_t row_bytes = table_.columns() * SizeOf(type_);
    for (int64_t at = block.span.begin; at < block.span.end; ++at) {
      const int64_t row = at + spec_.offset;
      if (row == spec_.padding_idx) {
        std::memset(out, 0, row_bytes);
      } else {
        WriteRow(PlaceOf(spec_.interpolation, row, table_.rows(),
                         spec_.interpolated_length.value_or(table_.rows())),
                 out);
      }
      out += row_bytes;
    }
  }

 private:
  void WriteRow(const RowPlace& place, std::byte* out) const {
    for (int64_t column = 0; column < table_.columns(); ++column) {
      const double value = table_.At(place.row, column);
      if (place.upper == 0) {
        RoundProduct(value, scale_, type_, out);
      } else {
        interpolator_.Write(place, value, table_.At(place.row + 1, column),
                            out);
      }
      out += SizeOf(type_);
    }
  }

  const LearnedAbsoluteSpec spec_;
  const Table table_;
  const double scale_;
  const DataType type_;
  const Interpolator interpolator_;
};

absl::Status CheckTableAndPadding(const LearnedAbsoluteSpec& spec) {
  if (!spec.table.has_value()) {
    return Invalid("learned_absolute.table: not set, want a table of [",
                   "positions, columns]");
  }
  const absl::Span<const int64_t> shape = spec.table->shape();
  ATTNBIAS_RETURN_IF_ERROR(
      CheckShape("learned_absolute.table", *spec.table,
                 {{shape.front(), "positions"}, {shape.back(), "columns"}}));
  if (!spec.padding_idx.has_value()) return absl::OkStatus();
  const int64_t rows = spec.table->rows();
  if (*spec.padding_idx >= 0 && *spec.padding_idx < rows) {
    return absl::OkStatus();
  }
  return Invalid("learned_absolute.padding_idx: got ", *spec.padding_idx,
                 ", want a row of the table, in [0, ", rows, ")");
}

absl::StatusOr<Encoding> DescribeLearnedAbsolute(
    const LearnedAbsoluteSpec& spec) {
  ATTNBIAS_RETURN_IF_ERROR(CheckTableAndPadding(spec));
  const int64_t rows = spec.interpolated_length.value_or(spec.table->rows());
  return Encoding{.width = spec.table->columns(),
                  .has_columns = true,
                  .domain = {-spec.offset, rows - spec.offset},
                  .prepare = PrepareFrom<LearnedAbsoluteEvaluator>(spec)};
}

const EncodingRegistration kLearnedAbsolute(&DescribeLearnedAbsolute);

}  // namespace
}  // namespace attnbias
