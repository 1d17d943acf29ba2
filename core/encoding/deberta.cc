// SPDX-License-Identifier: Apache-2.0
// DeBERTa's indices (He et al. 2021) into its relative embeddings.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "core/base/status_macros.h"
#include "core/encoding/by_distance.h"
#include "core/encoding/checks.h"
#include "core/encoding/deberta_buckets.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"

namespace attnbias {
namespace {

constexpr int64_t kMaxBucketSize = 4096;
// Twice as many embeddings still have 32-bit indices.
constexpr int64_t kMaxMaxPosition = int64_t{1} << 30;
// Distances that are their own buckets must fit into 32 bits.
constexpr Range kDistances = {-(int64_t{1} << 31) + 1, int64_t{1} << 31};

class DebertaEvaluator final : public Evaluator {
 public:
  explicit DebertaEvaluator(const DebertaSpec& spec) : spec_(spec) {
    if (spec.bucket_size != 0) {
      buckets_.emplace(spec.bucket_size, spec.max_position);
    }
  }

  void Fill(const Block& block, std::byte* out,
            int64_t /*lane_stride_bytes*/) const override {
    const Range distances = DistancesIn(block.span);
    for (int64_t d = distances.begin; d < distances.end; ++d) {
      const int64_t bucket = BucketOf(d);
      ForEachAt(d, block.span, [&](int64_t at) {
        // A key to the left of the query is at a positive distance.
        const int32_t index = IndexOf(at < 0 ? bucket : -bucket);
        std::memcpy(out + (at - block.span.begin) * sizeof(index), &index,
                    sizeof(index));
      });
    }
  }

 private:
  int64_t BucketOf(int64_t distance) const {
    if (!buckets_.has_value()) return distance;
    if (spec_.edge == DebertaEdge::kMicrosoft) {
      distance = std::min(distance, spec_.max_position - 1);
    }
    return buckets_->BucketOf(distance);
  }

  int32_t IndexOf(int64_t bucket) const {
    if (spec_.term == DebertaTerm::kPositionToContent) bucket = -bucket;
    if (spec_.term != DebertaTerm::kBucket) {
      const int64_t span =
          buckets_.has_value() ? spec_.bucket_size : spec_.max_position;
      bucket = std::clamp<int64_t>(bucket + span, 0, 2 * span - 1);
    }
    return static_cast<int32_t>(bucket);
  }

  const DebertaSpec spec_;
  std::optional<DebertaBuckets> buckets_;
};

class DebertaEncoding final : public Encoding {
 public:
  explicit DebertaEncoding(const DebertaSpec& spec) : spec_(spec) {}

  std::string_view name() const override { return "deberta"; }
  Structure structure() const override { return Structure::kToeplitz; }
  int64_t lanes() const override { return 1; }
  int64_t width() const override { return 1; }
  Range domain() const override {
    return spec_.bucket_size == 0 && spec_.term == DebertaTerm::kBucket
               ? kDistances
               : kRelativePositions;
  }
  bool has_indices() const override { return true; }

  void WriteIdentity(CanonicalWriter& writer) const override {
    const DebertaSpec defaults;
    writer.Integer(1, spec_.bucket_size, defaults.bucket_size);
    writer.Integer(2, spec_.max_position, defaults.max_position);
    writer.Integer(3, static_cast<int64_t>(spec_.term),
                   static_cast<int64_t>(defaults.term));
    writer.Integer(4, static_cast<int64_t>(spec_.edge),
                   static_cast<int64_t>(defaults.edge));
    WriteValues(true, writer);
  }

  std::unique_ptr<const Evaluator> Prepare(
      DataType /*type*/, const KernelSet& /*kernels*/) const override {
    return std::make_unique<DebertaEvaluator>(spec_);
  }

 private:
  const DebertaSpec spec_;
};

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const DebertaSpec& spec,
                                         const Output& output) {
  if (spec.bucket_size < 0 || spec.bucket_size > kMaxBucketSize ||
      spec.bucket_size % 2 != 0) {
    return Invalid("deberta.bucket_size: got ", spec.bucket_size,
                   ", want an even number in [2, ", kMaxBucketSize,
                   "], or 0 for none");
  }
  const int64_t least = spec.bucket_size == 0 ? 1 : spec.bucket_size / 2 + 2;
  if (spec.max_position < least || spec.max_position > kMaxMaxPosition) {
    return Invalid("deberta.max_position: got ", spec.max_position,
                   ", want an integer in [", least, ", ", kMaxMaxPosition, "]");
  }
  if (output.values == Values::kBias) {
    return Invalid(
        "output.values: got BIAS, want BUCKETS: deberta has indices alone");
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckScale(output));
  ATTNBIAS_RETURN_IF_ERROR(CheckUnscaled(output));
  return std::make_shared<const DebertaEncoding>(spec);
}

}  // namespace attnbias
