// SPDX-License-Identifier: Apache-2.0
// Learned absolute positions: rows of a table, possibly resampled.

#include <cstring>
#include <optional>

#include "core/base/errors.h"
#include "core/encoding/common/resample.h"
#include "core/encoding/encoding.h"
#include "core/table/table.h"

namespace attnbias {
namespace {

absl::Status CheckRows(const v1::LearnedAbsolute& spec, const Table& table) {
  const int64_t prefix = spec.resample().prefix_rows();  // 0 if unset
  if (prefix >= table.rows()) {
    return Invalid("learned_absolute.resample.prefix_rows: got ", prefix, ", want fewer than the ",
                   table.rows(), " rows of the table");
  }
  const int64_t row = spec.padding_idx();  // 0 if unset
  if (row >= 0 && row < table.rows()) return absl::OkStatus();
  return Invalid("learned_absolute.padding_idx: got ", row, ", want a row of the table, in [0, ",
                 table.rows(), ")");
}

absl::StatusOr<Encoding> DescribeLearnedAbsolute(const v1::LearnedAbsolute& spec,
                                                 const Tables& tables) {
  const Table table = *tables.Get(spec.table());
  ATTNBIAS_RETURN_IF_ERROR(CheckRows(spec, table));
  const int64_t prefix = spec.resample().prefix_rows();
  std::optional<Resampling> resampling;
  int64_t count = table.rows();
  if (spec.has_resample()) {
    ATTNBIAS_ASSIGN_OR_RETURN(
        resampling, Resampling::Create("learned_absolute.resample", spec.resample(),
                                       spec.resample().target(), count - prefix, table.columns()));
    count = prefix + resampling->rows();
  }
  const int64_t offset = spec.offset();
  const int64_t padding = spec.has_padding_idx() ? spec.padding_idx() : -1;
  return Encoding{.width = table.columns(),
                  .has_columns = true,
                  .domain = {-offset, count - offset},
                  .evaluator_bytes = resampling.has_value() ? resampling->bytes() : 0,
                  .prepare = [=](const NumberFormat& format, const KernelSet& /*kernels*/) {
                    const TableRows rows(table, resampling, prefix, format);
                    const Range columns = {0, table.columns()};
                    const int64_t bytes = SizeOf(format.type);
                    const auto fill = [=](const Block& block, std::byte* out,
                                          int64_t /*lane_stride*/) {
                      for (int64_t at = block.span.begin; at < block.span.end; ++at) {
                        if (at + offset == padding) {
                          std::memset(out, 0, columns.size() * bytes);
                        } else {
                          rows.Write(at + offset, columns, bytes, out);
                        }
                        out += columns.size() * bytes;
                      }
                    };
                    return MakeEvaluator(fill, rows.batch());
                  }};
}

const EncodingRegistration kLearnedAbsolute(v1::TensorSpec::kLearnedAbsoluteFieldNumber,
                                            &DescribeLearnedAbsolute);

}  // namespace
}  // namespace attnbias
