// SPDX-License-Identifier: Apache-2.0
// A learned scalar (Huang et al. 2020) or vector (Shaw et al. 2018) for every relative position.
#include <algorithm>
#include <cstdlib>
#include <optional>

#include "core/base/errors.h"
#include "core/encoding/common/bias_table.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/table/table.h"

namespace attnbias {
namespace {

// Returns the relative positions that have their own row.
Range ReachOf(const v1::LearnedRelative& spec) {
  return {-(spec.symmetric() ? spec.right() : spec.left()), spec.right() + 1};
}

RowSpan SpanFrom(const v1::LearnedRelative& spec, int64_t relative_position) {
  const Range reach = ReachOf(spec);
  RowSpan span = {std::clamp(relative_position, reach.begin, reach.end - 1), relative_position + 1};
  if (span.row > relative_position) span.end = reach.begin;
  if (span.row < relative_position) span.end = kRelativePositions.end;
  if (spec.symmetric()) {
    span.row = std::abs(span.row);
  } else if (spec.sign() == v1::RELATIVE_SIGN_KEY_MINUS_QUERY) {
    span.row += spec.left();
  } else {
    span.row = spec.right() - span.row;
  }
  return span;
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
        const auto span_from = [spec](int64_t at) { return SpanFrom(spec, at); };
        if (!vectors.has_value()) return PrepareTable(scalars, span_from, format);
        return PrepareTable(vectors, span_from, format, vectors->shape().back());
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
