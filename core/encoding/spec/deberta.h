// SPDX-License-Identifier: Apache-2.0
// DeBERTa's indices: what can be asked for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_DEBERTA_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_DEBERTA_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "core/encoding/spec/bucket_rule.h"
#include "core/encoding/spec/field.h"

namespace attnbias {

enum class DebertaTerm : uint8_t {
  kContentToPosition = 1,
  kPositionToContent,
  kBucket
};
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<DebertaTerm> = {
    "CONTENT_TO_POSITION", "POSITION_TO_CONTENT", "BUCKET"};

enum class DebertaEdge : uint8_t { kMicrosoft = 1, kHf };
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<DebertaEdge> = {
    "MICROSOFT", "HF"};

struct DebertaSpec {
  static constexpr std::string_view kName = "deberta";
  int64_t bucket_size = 256;
  int64_t max_position = 512;
  DebertaTerm term = DebertaTerm::kContentToPosition;
  Defaulted<DebertaEdge> edge = DefaultsTo(DebertaEdge::kMicrosoft);
  Defaulted<BucketRule> bucket_rule = DefaultsTo(BucketRule::kExact);

  FieldList Fields() {
    // Twice as many embeddings still have 32-bit indices.
    constexpr int64_t kMaxMaxPosition = int64_t{1} << 30;
    const int64_t least = bucket_size == 0 ? 1 : bucket_size / 2 + 2;
    return {Field(1, "bucket_size", bucket_size).In(0, 4096).Even(),
            Field(2, "max_position", max_position)
                .In(static_cast<double>(least), kMaxMaxPosition),
            Field(3, "term", term),
            Field(4, "edge", edge)
                .Idle(bucket_size == 0, "without buckets there is no edge"),
            Field(5, "bucket_rule", bucket_rule)
                .Idle(bucket_size == 0, "there are no buckets")};
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_DEBERTA_H_
