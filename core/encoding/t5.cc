// SPDX-License-Identifier: Apache-2.0
// T5 relative position bias (Raffel et al. 2020): one learned number per bucket
// and head.
#include <memory>

#include "core/base/status_macros.h"
#include "core/encoding/bias_table.h"
#include "core/encoding/checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/t5_buckets.h"

namespace attnbias {
namespace {

class T5Encoding final : public Encoding {
 public:
  T5Encoding(const T5Spec& spec, const Output& output)
      : spec_(spec), output_(output) {}

  std::string_view name() const override { return "t5"; }
  Structure structure() const override { return Structure::kToeplitz; }
  int64_t lanes() const override { return has_indices() ? 1 : spec_.num_heads; }
  int64_t width() const override { return 1; }
  Range domain() const override { return kRelativePositions; }
  bool has_indices() const override {
    return output_.values == Values::kBuckets;
  }

  void WriteIdentity(CanonicalWriter& writer) const override {
    writer.Integer(2, spec_.num_buckets, 32);
    writer.Integer(3, spec_.max_distance, 128);
    writer.Integer(4, *spec_.bidirectional ? 1 : 0);
    if (!has_indices()) writer.Bytes(5, spec_.table->sha256());
    writer.Integer(6, static_cast<int64_t>(spec_.bucket_rule),
                   static_cast<int64_t>(BucketRule::kExact));
    WriteValues(has_indices(), writer);
    writer.Real(101, output_.scale, 1);
  }

  std::unique_ptr<const Evaluator> Prepare(
      DataType type, const KernelSet& /*kernels*/) const override {
    return std::make_unique<BiasTableEvaluator>(
        BiasTable(spec_.table, output_.scale),
        [buckets = T5Buckets(spec_)](int64_t at) {
          const T5Buckets::Run run = buckets.RunFrom(at);
          return RowRun{run.bucket, run.end};
        },
        type);
  }

 private:
  const T5Spec spec_;
  const Output output_;
};

absl::Status CheckTable(const T5Spec& spec) {
  if (!spec.table.has_value()) {
    return Invalid("t5.table: not set, want a table of [", spec.num_buckets,
                   " buckets, ", spec.num_heads, " heads], or values BUCKETS");
  }
  return CheckShape("t5.table", *spec.table,
                    {{spec.num_buckets, "buckets"}, {spec.num_heads, "heads"}});
}

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const T5Spec& spec,
                                         const Output& output) {
  ATTNBIAS_RETURN_IF_ERROR(CheckBuckets("t5", spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckScale(output));
  if (output.values != Values::kBuckets) {
    ATTNBIAS_RETURN_IF_ERROR(CheckNumHeads("t5.num_heads", spec.num_heads));
    ATTNBIAS_RETURN_IF_ERROR(CheckTable(spec));
  } else {
    ATTNBIAS_RETURN_IF_ERROR(CheckUnscaled(output));
  }
  return std::make_shared<const T5Encoding>(spec, output);
}

}  // namespace attnbias
