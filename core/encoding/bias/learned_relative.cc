// SPDX-License-Identifier: Apache-2.0
// A learned scalar for every relative position and head.
#include <cstdlib>
#include <memory>

#include "core/encoding/common/bias_table.h"
#include "core/encoding/common/limits.h"
#include "core/encoding/common/table_checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"

namespace attnbias {
namespace {

// Relative positions with a row of their own.
Range ReachOf(const v1::LearnedRelative& spec) {
  return {-(spec.symmetric() ? spec.right() : spec.left()), spec.right() + 1};
}

RowSpan SpanFrom(const v1::LearnedRelative& spec, int64_t relative_position) {
  RowSpan span = ClippedFrom(relative_position, ReachOf(spec));
  span.row = spec.symmetric() ? std::abs(span.row) : span.row + spec.left();
  return span;
}

absl::Status CheckBiases(const v1::LearnedRelative& spec,
                         const std::optional<Table>& table) {
  const int64_t rows =
      spec.symmetric() ? spec.right() + 1 : ReachOf(spec).size();
  const bool shared =
      table.has_value() && table->shape().size() == 2 && table->columns() == 1;
  return CheckTable("learned_relative.table", table,
                    {{rows, "relative positions"},
                     {shared ? 1 : spec.num_heads(),
                      table.has_value() ? "heads (num_heads)" : "heads or 1"}});
}

absl::StatusOr<Encoding> DescribeLearnedRelative(
    const v1::LearnedRelative& spec, const Tables& tables) {
  const std::optional<Table> table = tables.Get(spec.table());
  return Encoding{
      .structure = Structure::kToeplitz,
      .lanes = spec.num_heads(),
      .has_heads = true,
      .domain = spec.beyond() == v1::BEYOND_REACH_REFUSE ? ReachOf(spec)
                                                         : kRelativePositions,
      .has_buckets = true,
      .bias_status = CheckBiases(spec, table),
      .prepare = [=](const NumberFormat& format, const KernelSet& /*kernels*/) {
        return std::make_unique<BiasTableEvaluator>(
            table, [spec](int64_t at) { return SpanFrom(spec, at); }, format);
      }};
}

const EncodingRegistration kLearnedRelative(
    v1::TensorSpec::kLearnedRelativeFieldNumber, &DescribeLearnedRelative);

}  // namespace
}  // namespace attnbias
