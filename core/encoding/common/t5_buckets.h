// SPDX-License-Identifier: Apache-2.0
// T5's map from relative positions to buckets (Raffel et al. 2020; the formula is mesh-tensorflow's
// _relative_position_bucket).
//
// With n = |key - query|, B buckets to a side, m = B / 2 of them exact and D = max_distance:
//
//   bucket(n) = n                                                 for n < m
//   bucket(n) = min(B - 1, m + floor((B - m) ln(n/m) / ln(D/m)))  otherwise
//
// The map is monotone and stored as the distance at which each bucket begins.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "attnbias/v1/encodings.pb.h"
#include "core/encoding/common/bias_table.h"

namespace attnbias {

struct T5BucketRule {
  int64_t num_buckets;
  int64_t max_distance;
  bool bidirectional;
  v1::BucketRule rounding = v1::BUCKET_RULE_EXACT;
};

// Checks that num_buckets and max_distance of `encoding`, each in its own range, fit each other.
absl::Status CheckBuckets(absl::string_view encoding, const T5BucketRule& rule);

// Returns the sign of (a / m)^s - (b / m)^k, which changes at the borders of logarithmic buckets.
// No argument is negative, and m is not 0.
int ComparePowers(int64_t a, int64_t s, int64_t b, int64_t k, int64_t m);

class T5Buckets {
 public:
  // `rule` is one that CheckBuckets accepts.
  explicit T5Buckets(const T5BucketRule& rule);

  // Returns the bucket of a relative position (key - query), and where it ends.
  RowSpan SpanFrom(int64_t relative_position) const;

 private:
  int64_t BucketOfDistance(int64_t distance) const;

  const bool bidirectional_;
  // starts_[b]: the smallest distance that falls into bucket b or a later one.
  std::vector<int64_t> starts_;
};

}  // namespace attnbias
