// SPDX-License-Identifier: Apache-2.0
// Relative position representations (Shaw et al. 2018): a learned vector for
// every relative position.
#include <algorithm>
#include <cstring>
#include <memory>

#include "core/base/invalid.h"
#include "core/encoding/common/bias_table.h"
#include "core/encoding/common/limits.h"
#include "core/encoding/common/table_checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/numerics/rounding.h"

namespace attnbias {
namespace {

// Relative positions with a row of their own.
Range ReachOf(const v1::Shaw& spec) { return {-spec.left(), spec.right() + 1}; }

// Of the table's last two axes.
RowSpan SpanFrom(const v1::Shaw& spec, int64_t relative_position) {
  RowSpan span = ClippedFrom(relative_position, ReachOf(spec));
  span.row = spec.sign() == v1::RELATIVE_SIGN_KEY_MINUS_QUERY
                 ? span.row + spec.left()
                 : spec.right() - span.row;
  return span;
}

class ShawVectors final : public Evaluator {
 public:
  ShawVectors(const v1::Shaw& spec, const Table& table,
              const NumberFormat& format)
      : spec_(spec),
        table_(table),
        width_(table_.shape().back()),
        format_(format) {}

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override {
    for (int64_t lane = block.lanes.begin; lane < block.lanes.end; ++lane) {
      FillLane(lane, block.span, out);
      out += lane_stride_bytes;
    }
  }

 private:
  void FillLane(int64_t lane, Range span, std::byte* out) const {
    const int64_t row_bytes = width_ * SizeOf(format_.type);
    for (int64_t at = span.begin; at < span.end;) {
      const RowSpan same = SpanFrom(spec_, at);
      WriteRow(lane, same.row, out);
      out += row_bytes;
      for (++at; at < std::min(same.end, span.end); ++at) {
        std::memcpy(out, out - row_bytes, row_bytes);
        out += row_bytes;
      }
    }
  }

  void WriteRow(int64_t lane, int64_t index, std::byte* out) const {
    const bool per_head = table_.shape().size() == 3;
    const int64_t row = per_head ? lane : index;
    const int64_t first = per_head ? index * width_ : 0;
    for (int64_t column = 0; column < width_; ++column) {
      RoundProduct(table_.At(row, first + column), format_.scale, format_.type,
                   out);
      out += SizeOf(format_.type);
    }
  }

  const v1::Shaw spec_;
  const Table table_;
  const int64_t width_;
  const NumberFormat format_;
};

absl::Status CheckBiases(const v1::Shaw& spec,
                         const std::optional<Table>& table) {
  const int64_t rows = ReachOf(spec).size();
  if (!table.has_value()) {
    return Invalid("shaw.table: not set, want a table of [", rows,
                   " relative positions, columns], a head axis before them "
                   "where heads differ, or values BUCKETS");
  }
  const TableAxis positions = {rows, "relative positions"};
  const TableAxis columns = {table->shape().back(), "columns"};
  if (table->shape().size() < 3) {
    return CheckShape("shaw.table", *table, {positions, columns});
  }
  const TableAxis heads = {table->shape()[0], "heads"};
  if (heads.length > kMaxNumHeads) {
    return Invalid("shaw.table: got ", heads.length, " heads, want at most ",
                   kMaxNumHeads);
  }
  return CheckShape("shaw.table", *table, {heads, positions, columns});
}

absl::StatusOr<Encoding> DescribeShaw(const v1::Shaw& spec,
                                      const Tables& tables) {
  const std::optional<Table> table = tables.Get(spec.table());
  const bool per_head = table.has_value() && table->shape().size() == 3;
  return Encoding{
      .structure = Structure::kToeplitz,
      .lanes = per_head ? table->shape()[0] : 1,
      .has_heads = per_head,
      .width = table.has_value() ? table->shape().back() : 1,
      .has_columns = true,
      .domain = spec.beyond() == v1::BEYOND_REACH_CLIP ? kRelativePositions
                                                       : ReachOf(spec),
      .has_buckets = true,
      .bias_status = CheckBiases(spec, table),
      .prepare = [=](const NumberFormat& format,
                     const KernelSet& /*kernels*/) -> EvaluatorPtr {
        if (format.type == DataType::kI32) {
          return std::make_unique<BiasTableEvaluator>(
              std::nullopt, [spec](int64_t at) { return SpanFrom(spec, at); },
              format);
        }
        return std::make_unique<ShawVectors>(spec, *table, format);
      }};
}

const EncodingRegistration kShaw(v1::TensorSpec::kShawFieldNumber,
                                 &DescribeShaw);

}  // namespace
}  // namespace attnbias
