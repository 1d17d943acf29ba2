// SPDX-License-Identifier: Apache-2.0
// A learned scalar for every relative position and head.
#include <cstdlib>
#include <memory>

#include "core/encoding/common/bias_table.h"
#include "core/encoding/common/table_checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/spec/limits.h"
#include "core/encoding/spec/relative_table.h"

namespace attnbias {
namespace {

// Relative positions with a row of their own.
Range ReachOf(const LearnedRelativeSpec& spec) {
  return {spec.symmetric ? -*spec.right : -*spec.left, *spec.right + 1};
}

int64_t TableRowsOf(const LearnedRelativeSpec& spec) {
  return spec.symmetric ? *spec.right + 1 : ReachOf(spec).size();
}

RowSpan SpanFrom(const LearnedRelativeSpec& spec, int64_t relative_position) {
  RowSpan span = ClippedFrom(relative_position, ReachOf(spec));
  span.row = spec.symmetric ? std::abs(span.row) : span.row + *spec.left;
  return span;
}

absl::Status CheckBiases(const LearnedRelativeSpec& spec) {
  const int64_t rows = TableRowsOf(spec);
  const bool shared = spec.table.has_value() &&
                      spec.table->shape().size() == 2 &&
                      spec.table->columns() == 1;
  return CheckTable(
      "learned_relative.table", spec.table,
      {{rows, "relative positions"},
       {shared ? 1 : spec.num_heads,
        spec.table.has_value() ? "heads (num_heads)" : "heads or 1"}},
      kOrBuckets);
}

absl::StatusOr<Encoding> DescribeLearnedRelative(
    const LearnedRelativeSpec& spec) {
  return Encoding{
      .structure = Structure::kToeplitz,
      .lanes = spec.num_heads,
      .has_heads = true,
      .domain = spec.beyond == BeyondReach::kRefuse ? ReachOf(spec)
                                                    : kRelativePositions,
      .has_buckets = true,
      .bias_status = CheckBiases(spec),
      .prepare = [spec](const NumberFormat& format,
                        const KernelSet& /*kernels*/) {
        return std::make_unique<BiasTableEvaluator>(
            spec.table, [spec](int64_t at) { return SpanFrom(spec, at); },
            format);
      }};
}

const EncodingRegistration kLearnedRelative(&DescribeLearnedRelative);

}  // namespace
}  // namespace attnbias
