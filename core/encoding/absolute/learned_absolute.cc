// SPDX-License-Identifier: Apache-2.0
// Learned absolute positions: rows of a table, perhaps resampled.

#include <cstring>
#include <optional>
#include <utility>

#include "core/base/errors.h"
#include "core/encoding/common/resample.h"
#include "core/encoding/common/table_checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"

namespace attnbias {
namespace {

class LearnedAbsoluteEvaluator final : public Evaluator {
 public:
  LearnedAbsoluteEvaluator(const v1::LearnedAbsolute& spec, const Table& table,
                           std::optional<Resampling> resampling,
                           const NumberFormat& format)
      : spec_(spec),
        columns_{0, table.columns()},
        number_bytes_(SizeOf(format.type)),
        rows_(table, std::move(resampling), spec.resample().prefix_rows(),
              format) {}

  void Fill(const Block& block, std::byte* out,
            int64_t /*lane_stride_bytes*/) const override {
    const int64_t row_bytes = columns_.size() * number_bytes_;
    for (int64_t at = block.span.begin; at < block.span.end; ++at) {
      const int64_t row = at + spec_.offset();
      if (spec_.has_padding_idx() && row == spec_.padding_idx()) {
        std::memset(out, 0, row_bytes);
      } else {
        rows_.Write(row, columns_, number_bytes_, out);
      }
      out += row_bytes;
    }
  }

  int64_t batch() const override { return rows_.batch(); }

 private:
  const v1::LearnedAbsolute spec_;
  const Range columns_;
  const int64_t number_bytes_;
  const TableRows rows_;
};

absl::Status CheckTableAndPadding(const v1::LearnedAbsolute& spec,
                                  const Table& table) {
  const absl::Span<const int64_t> shape = table.shape();
  ATTNBIAS_RETURN_IF_ERROR(
      CheckShape("learned_absolute.table", table,
                 {{shape.front(), "positions"}, {shape.back(), "columns"}}));
  const int64_t prefix = spec.resample().prefix_rows();  // 0 if unset
  if (prefix >= table.rows()) {
    return Invalid("learned_absolute.resample.prefix_rows: got ", prefix,
                   ", want fewer than the ", table.rows(),
                   " rows of the table");
  }
  const int64_t row = spec.padding_idx();  // 0 if unset
  if (row >= 0 && row < table.rows()) return absl::OkStatus();
  return Invalid("learned_absolute.padding_idx: got ", row,
                 ", want a row of the table, in [0, ", table.rows(), ")");
}

absl::StatusOr<Encoding> DescribeLearnedAbsolute(
    const v1::LearnedAbsolute& spec, const Tables& tables) {
  const Table table = *tables.Get(spec.table());
  ATTNBIAS_RETURN_IF_ERROR(CheckTableAndPadding(spec, table));
  std::optional<Resampling> resampling;
  int64_t rows = table.rows();
  if (spec.has_resample()) {
    const int64_t prefix = spec.resample().prefix_rows();
    ATTNBIAS_ASSIGN_OR_RETURN(
        resampling,
        Resampling::Create("learned_absolute.resample", spec.resample(),
                           spec.resample().target(), rows - prefix,
                           table.columns()));
    rows = prefix + resampling->rows();
  }
  return Encoding{
      .width = table.columns(),
      .has_columns = true,
      .domain = {-spec.offset(), rows - spec.offset()},
      .evaluator_bytes = resampling.has_value() ? resampling->bytes() : 0,
      .prepare =
          PrepareFrom<LearnedAbsoluteEvaluator>(spec, table, resampling)};
}

const EncodingRegistration kLearnedAbsolute(
    v1::TensorSpec::kLearnedAbsoluteFieldNumber, &DescribeLearnedAbsolute);

}  // namespace
}  // namespace attnbias
