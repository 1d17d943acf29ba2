// SPDX-License-Identifier: Apache-2.0
// T5 relative position bias (Raffel et al. 2020): one learned value per bucket and head.
#include <optional>

#include "core/base/errors.h"
#include "core/encoding/common/bias_table.h"
#include "core/encoding/encoding.h"
#include "core/table/table.h"

namespace attnbias {
namespace {

absl::StatusOr<Encoding> DescribeT5(const v1::T5& t5, const Tables& tables) {
  const T5BucketRule rule = {t5.num_buckets(), t5.max_distance(), t5.bidirectional(),
                             t5.bucket_rule()};
  ATTNBIAS_RETURN_IF_ERROR(CheckBuckets("t5", rule));
  const std::optional<Table> table = tables.Get(t5.table());
  return Encoding{.structure = Structure::kToeplitz,
                  .lanes = t5.num_heads(),
                  .has_heads = true,
                  .domain = kRelativePositions,
                  .has_buckets = true,
                  .prepare = [=](const NumberFormat& format, const KernelSet& /*kernels*/) {
                    const auto span_from = [buckets = T5Buckets(rule)](int64_t relative_position) {
                      return buckets.SpanFrom(relative_position);
                    };
                    return PrepareTable(table, span_from, format);
                  }};
}

const EncodingRegistration kT5(v1::TensorSpec::kT5FieldNumber, &DescribeT5);

}  // namespace
}  // namespace attnbias
