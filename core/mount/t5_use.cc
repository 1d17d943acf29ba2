// SPDX-License-Identifier: Apache-2.0
// T5's buckets, in the models that have them.
#include "core/encoding/spec/t5.h"
#include "core/mount/table_use.h"

namespace attnbias {
namespace {

constexpr int64_t kNumBuckets = 32;
constexpr int64_t kMaxDistance = 128;

T5Spec BiasOf(const Table& table, bool bidirectional) {
  return {.num_heads = table.columns(),
          .num_buckets = kNumBuckets,
          .max_distance = kMaxDistance,
          .bidirectional = bidirectional,
          .table = table,
          // torch's logarithm chose the buckets in training.
          .bucket_rule = BucketRule::kFloat32Log};
}

T5Spec ConfiguredBias(const Place& place, ModelConfig& config,
                      bool bidirectional) {
  T5Spec spec = BiasOf(place.table(), bidirectional);
  spec.num_buckets =
      config.Integer("relative_attention_num_buckets", kNumBuckets);
  spec.max_distance =
      config.Integer("relative_attention_max_distance", kMaxDistance);
  return spec;
}

}  // namespace

std::optional<EncodingSpec> T5Encoder(const Place& place, ModelConfig& config) {
  return ConfiguredBias(place, config, true);
}

std::optional<EncodingSpec> T5Decoder(const Place& place, ModelConfig& config) {
  return ConfiguredBias(place, config, false);
}

// Its code computes 32 buckets whatever number the table was made for.
std::optional<EncodingSpec> MpnetBias(const Place& place,
                                      ModelConfig& /*config*/) {
  if (place.table().rows() != kNumBuckets) return std::nullopt;
  return BiasOf(place.table(), true);
}

}  // namespace attnbias
