// SPDX-License-Identifier: Apache-2.0
// DeBERTa's indices (He et al. 2021) into its relative embeddings.
#include "core/encoding/spec/deberta.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/encoding/bias/deberta_buckets.h"
#include "core/encoding/common/by_distance.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/spec/limits.h"

namespace attnbias {
namespace {

// Distances that are their own buckets must fit into 32 bits.
constexpr Range kDistances = {-(int64_t{1} << 31) + 1, int64_t{1} << 31};

class DebertaEvaluator final : public Evaluator {
 public:
  DebertaEvaluator(const DebertaSpec& spec, const NumberFormat& /*indices*/)
      : spec_(spec) {
    if (spec.bucket_size != 0) {
      buckets_.emplace(spec.bucket_size, spec.max_position, spec.bucket_rule);
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

absl::StatusOr<Encoding> DescribeDeberta(const DebertaSpec& spec) {
  const bool are_distances =
      spec.bucket_size == 0 && spec.term == DebertaTerm::kBucket;
  return Encoding{.structure = Structure::kToeplitz,
                  .domain = are_distances ? kDistances : kRelativePositions,
                  .has_biases = false,
                  .has_buckets = true,
                  .prepare = PrepareFrom<DebertaEvaluator>(spec)};
}

const EncodingRegistration kDeberta(&DescribeDeberta);

}  // namespace
}  // namespace attnbias
