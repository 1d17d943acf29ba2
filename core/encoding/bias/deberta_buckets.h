// SPDX-License-Identifier: Apache-2.0
// DeBERTa-v2's map from distances to buckets (He et al. 2021; the formula is
// make_log_bucket_position of its code).
//
// With m = bucket_size / 2, M = max_position - 1 and a = |distance|:
//
//   bucket(a) = a                                            for a <= m
//   bucket(a) = m + ceil((m - 1) ln(a / m) / ln(M / m))      otherwise
//
// and of a negative distance the negative of that. FLOAT32_LOG takes logarithms
// of float32 quotients, rounds them to float32, and so each operation after.
#ifndef ATTNBIAS_CORE_ENCODING_BIAS_DEBERTA_BUCKETS_H_
#define ATTNBIAS_CORE_ENCODING_BIAS_DEBERTA_BUCKETS_H_

#include <cstdint>

#include "attnbias/v1/encodings.pb.h"

namespace attnbias {

class DebertaBuckets {
 public:
  // bucket_size is even and positive, max_position above bucket_size / 2 + 1.
  DebertaBuckets(int64_t bucket_size, int64_t max_position,
                 v1::BucketRule rule);

  // Exactly the rule's, for distances up to 2^42.
  int64_t BucketOf(int64_t distance) const;

 private:
  // Of distances a > m.
  int64_t ExactBucketOf(int64_t a) const;
  int64_t Float32BucketOf(int64_t a) const;
  // Whether a is beyond the k-th border: (a / m)^(m - 1) > (M / m)^k.
  bool IsBeyond(int64_t a, int64_t k) const;

  const int64_t middle_;
  const int64_t farthest_;
  const v1::BucketRule rule_;
  const double buckets_per_log_;  // (m - 1) / ln(M / m), for EXACT
  const float float32_log_;       // ln(M / m), for FLOAT32_LOG
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_BIAS_DEBERTA_BUCKETS_H_
