// SPDX-License-Identifier: Apache-2.0
// T5 relative position bias (Raffel et al. 2020): one learned number per bucket
// and head.
#include <algorithm>
#include <memory>
#include <optional>

#include "core/base/status_macros.h"
#include "core/encoding/checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/t5_buckets.h"
#include "core/numerics/rounding.h"
#include "core/tensor/element.h"

namespace attnbias {
namespace {

// What stands at a bucket: its bias, or with BUCKETS its own index.
class T5Evaluator final : public Evaluator {
 public:
  T5Evaluator(const T5Spec& spec, const Output& output, DataType type)
      : buckets_(spec), table_(spec.table), scale_(output.scale), type_(type) {}

  void Fill(const Block& block, std::byte* out,
            int64_t lane_stride_bytes) const override {
    const int64_t width = SizeOf(type_);
    for (int64_t at = block.span.begin; at < block.span.end;) {
      const T5Buckets::Run run = buckets_.RunFrom(at);
      const int64_t end = std::min(run.end, block.span.end);
      std::byte* to = out + (at - block.span.begin) * width;
      for (int64_t lane = block.lanes.begin; lane < block.lanes.end; ++lane) {
        std::byte value[sizeof(double)];
        WriteNumber(run.bucket, lane, value);
        RepeatElement(type_, value, end - at, to);
        to += lane_stride_bytes;
      }
      at = end;
    }
  }

 private:
  void WriteNumber(int64_t bucket, int64_t head, std::byte* out) const {
    if (type_ == DataType::kI32) {
      const auto index = static_cast<int32_t>(bucket);
      RepeatElement(type_, reinterpret_cast<const std::byte*>(&index), 1, out);
    } else {
      RoundProduct(table_->At(bucket, head), scale_, type_, out);
    }
  }

  const T5Buckets buckets_;
  const std::optional<Table> table_;
  const double scale_;
  const DataType type_;
};

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
    return std::make_unique<T5Evaluator>(spec_, output_, type);
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
