// SPDX-License-Identifier: Apache-2.0
// A learned scalar (Huang et al. 2020) or vector (Shaw et al. 2018) for every relative position.
#include <algorithm>
#include <cstdlib>
#include <optional>

#include "core/base/errors.h"
#include "core/encoding/common/bias_table.h"
#include "core/encoding/encoding.h"
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

absl::StatusOr<Encoding> DescribeLearnedRelative(const v1::LearnedRelative& spec,
                                                 const Tables& tables) {
  const std::optional<Table> scalars = tables.Get(spec.scalars());
  const std::optional<Table> vectors = tables.Get(spec.vectors());
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
  if (vectors.has_value()) {
    encoding.has_heads = vectors->shape().size() == 3;
    encoding.lanes = encoding.has_heads ? vectors->shape()[0] : 1;
    if (encoding.lanes > kMaxNumHeads) {
      encoding.bias_status = Invalid("learned_relative.vectors: got ", encoding.lanes,
                                     " heads, want at most ", kMaxNumHeads);
    }
    encoding.width = vectors->shape().back();
    encoding.has_columns = true;
  }
  return encoding;
}

const EncodingRegistration kLearnedRelative(v1::TensorSpec::kLearnedRelativeFieldNumber,
                                            &DescribeLearnedRelative);

}  // namespace
}  // namespace attnbias
