// SPDX-License-Identifier: Apache-2.0
// A learned scalar (Huang et al. 2020) or vector (Shaw et al. 2018) for every relative position.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "core/base/errors.h"
#include "core/encoding/common/bias_table.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/numerics/rounding.h"
#include "core/table/table.h"

namespace attnbias {
namespace {

// Returns the relative positions that have their own row.
Range ReachOf(const v1::LearnedRelative& spec) {
  return {-(spec.symmetric() ? spec.right() : spec.left()), spec.right() + 1};
}

RowSpan SpanFrom(const v1::LearnedRelative& spec, int64_t relative_position) {
  RowSpan span = ClippedFrom(relative_position, ReachOf(spec));
  if (spec.symmetric()) {
    span.row = std::abs(span.row);
  } else if (spec.sign() == v1::RELATIVE_SIGN_KEY_MINUS_QUERY) {
    span.row += spec.left();
  } else {
    span.row = spec.right() - span.row;
  }
  return span;
}

// Prepares vectors [relative positions, width] or [heads, relative positions, width].
EvaluatorPtr PrepareVectors(const v1::LearnedRelative& spec, const Table& table,
                            const NumberFormat& format) {
  const int64_t width = table.shape().back();
  const bool per_head = table.shape().size() == 3;
  const auto write_row = [=](int64_t lane, int64_t index, std::byte* out) {
    const int64_t row = per_head ? lane : index;
    const int64_t first = per_head ? index * width : 0;
    for (int64_t column = 0; column < width; ++column) {
      RoundProduct(table.At(row, first + column), format.scale, format.type, out);
      out += SizeOf(format.type);
    }
  };
  return MakeEvaluator([=, row_bytes = width * SizeOf(format.type)](
                           const Block& block, std::byte* out, int64_t lane_stride_bytes) {
    for (int64_t lane = block.lanes.begin; lane < block.lanes.end; ++lane) {
      std::byte* to = out + (lane - block.lanes.begin) * lane_stride_bytes;
      for (int64_t at = block.span.begin; at < block.span.end;) {
        const RowSpan same = SpanFrom(spec, at);
        write_row(lane, same.row, to);
        to += row_bytes;
        for (++at; at < std::min(same.end, block.span.end); ++at) {
          std::memcpy(to, to - row_bytes, row_bytes);
          to += row_bytes;
        }
      }
    }
  });
}

absl::Status CheckScalars(const v1::LearnedRelative& spec, const TableAxis& positions,
                          const Table& table) {
  const bool shared = table.shape().size() == 2 && table.columns() == 1;
  return CheckShape("learned_relative.scalars", table,
                    {positions, {shared ? 1 : spec.num_heads(), "heads (num_heads)"}});
}

absl::Status CheckVectors(const TableAxis& positions, const Table& table) {
  constexpr absl::string_view kField = "learned_relative.vectors";
  const TableAxis columns = {table.shape().back(), "columns"};
  if (table.shape().size() < 3) return CheckShape(kField, table, {positions, columns});
  const TableAxis heads = {table.shape()[0], "heads"};
  if (heads.length > kMaxNumHeads) {
    return Invalid(kField, ": got ", heads.length, " heads, want at most ", kMaxNumHeads);
  }
  return CheckShape(kField, table, {heads, positions, columns});
}

absl::StatusOr<Encoding> DescribeLearnedRelative(const v1::LearnedRelative& spec,
                                                 const Tables& tables) {
  const std::optional<Table> scalars = tables.Get(spec.scalars());
  const std::optional<Table> vectors = tables.Get(spec.vectors());
  const TableAxis positions = {spec.symmetric() ? spec.right() + 1 : ReachOf(spec).size(),
                               "relative positions"};
  Encoding encoding = {
      .structure = Structure::kToeplitz,
      .lanes = spec.num_heads(),
      .has_heads = true,
      .domain = spec.beyond() == v1::BEYOND_REACH_REFUSE ? ReachOf(spec) : kRelativePositions,
      .has_buckets = true,
      .prepare = [=](const NumberFormat& format, const KernelSet& /*kernels*/) {
        if (vectors.has_value() && format.type != DataType::kI32) {
          return PrepareVectors(spec, *vectors, format);
        }
        return PrepareBiasTable(
            scalars, [spec](int64_t at) { return SpanFrom(spec, at); }, format);
      }};
  if (scalars.has_value()) encoding.bias_status = CheckScalars(spec, positions, *scalars);
  if (vectors.has_value()) {
    encoding.bias_status = CheckVectors(positions, *vectors);
    encoding.has_heads = vectors->shape().size() == 3;
    encoding.lanes = encoding.has_heads ? vectors->shape()[0] : 1;
    encoding.width = vectors->shape().back();
    encoding.has_columns = true;
  }
  return encoding;
}

const EncodingRegistration kLearnedRelative(v1::TensorSpec::kLearnedRelativeFieldNumber,
                                            &DescribeLearnedRelative);

}  // namespace
}  // namespace attnbias
