// SPDX-License-Identifier: Apache-2.0
// DeBERTa's indices (He et al. 2021) into its relative embeddings.

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/base/invalid.h"
#include "core/encoding/bias/deberta_buckets.h"
#include "core/encoding/common/by_distance.h"
#include "core/encoding/common/limits.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"

namespace attnbias {
namespace {

// Distances that are their own buckets must fit into 32 bits.
constexpr Range kDistances = {-(int64_t{1} << 31) + 1, int64_t{1} << 31};

class DebertaEvaluator final : public Evaluator {
 public:
  DebertaEvaluator(const v1::Deberta& spec, const NumberFormat& /*indices*/)
      : spec_(spec) {
    if (spec.bucket_size() != 0) {
      buckets_.emplace(spec.bucket_size(), spec.max_position(),
                       spec.bucket_rule());
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
    if (spec_.edge() == v1::DEBERTA_EDGE_MICROSOFT) {
      distance = std::min<int64_t>(distance, spec_.max_position() - 1);
    }
    return buckets_->BucketOf(distance);
  }

  int32_t IndexOf(int64_t bucket) const {
    if (spec_.term() == v1::DEBERTA_TERM_POSITION_TO_CONTENT) bucket = -bucket;
    if (spec_.term() != v1::DEBERTA_TERM_BUCKET) {
      const int64_t span =
          buckets_.has_value() ? spec_.bucket_size() : spec_.max_position();
      bucket = std::clamp<int64_t>(bucket + span, 0, 2 * span - 1);
    }
    return static_cast<int32_t>(bucket);
  }

  const v1::Deberta spec_;
  std::optional<DebertaBuckets> buckets_;
};

absl::StatusOr<Encoding> DescribeDeberta(const v1::Deberta& spec,
                                         const Tables& /*tables*/) {
  const int32_t least = spec.bucket_size() / 2 + 2;
  if (spec.bucket_size() != 0 && spec.max_position() < least) {
    return Invalid("deberta.max_position: got ", spec.max_position(),
                   ", want at least ", least, " (bucket_size / 2 + 2)");
  }
  const bool are_distances =
      spec.bucket_size() == 0 && spec.term() == v1::DEBERTA_TERM_BUCKET;
  return Encoding{.structure = Structure::kToeplitz,
                  .domain = are_distances ? kDistances : kRelativePositions,
                  .has_biases = false,
                  .has_buckets = true,
                  .prepare = PrepareFrom<DebertaEvaluator>(spec)};
}

const EncodingRegistration kDeberta(v1::TensorSpec::kDebertaFieldNumber,
                                    &DescribeDeberta);

}  // namespace
}  // namespace attnbias
