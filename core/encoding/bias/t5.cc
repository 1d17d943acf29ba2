// SPDX-License-Identifier: Apache-2.0
// T5 relative position bias (Raffel et al. 2020): one learned number per bucket
// and head.
#include "core/encoding/spec/t5.h"

#include <memory>

#include "core/base/status_macros.h"
#include "core/encoding/common/bias_table.h"
#include "core/encoding/common/t5_buckets.h"
#include "core/encoding/common/table_checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/spec/limits.h"

namespace attnbias {
namespace {

absl::StatusOr<Encoding> DescribeT5(const T5Spec& spec) {
  ATTNBIAS_RETURN_IF_ERROR(CheckBuckets("t5", spec));
  return Encoding{
      .structure = Structure::kToeplitz,
      .lanes = spec.num_heads,
      .has_heads = true,
      .domain = kRelativePositions,
      .has_buckets = true,
      .bias_status = CheckTable("t5.table", spec.table,
                                {{spec.num_buckets, "buckets"},
                                 {spec.num_heads, "heads (num_heads)"}},
                                kOrBuckets),
      .prepare = [spec](const NumberFormat& format,
                        const KernelSet& /*kernels*/) {
        return std::make_unique<BiasTableEvaluator>(
            spec.table,
            [buckets = T5Buckets(spec)](int64_t relative_position) {
              return buckets.SpanFrom(relative_position);
            },
            format);
      }};
}

const EncodingRegistration kT5(&DescribeT5);

}  // namespace
}  // namespace attnbias
