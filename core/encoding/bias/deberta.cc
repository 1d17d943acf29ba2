// SPDX-License-Identifier: Apache-2.0
// Indices into DeBERTa's relative embeddings (He et al. 2021).

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include "core/base/errors.h"
#include "core/encoding/common/bias_table.h"
#include "core/encoding/common/by_distance.h"
#include "core/encoding/encoding.h"
#include "core/numerics/double_double.h"
#include "core/numerics/real.h"

namespace attnbias {
namespace {

// Relative error of a logarithm computed in doubles. Leaves room for any math library.
constexpr double kEstimateBound = 0x1p-40;

double LogRatio(int64_t numerator, int64_t denominator) {
  return std::log1p(static_cast<double>(numerator - denominator) /
                    static_cast<double>(denominator));
}

// Returns ln(numerator / denominator) to within a relative error of 2^(1 - precision).
Real LogRatio(int64_t numerator, int64_t denominator, int precision) {
  Real log = Real(numerator - denominator, precision) / denominator;
  mpfr_log1p(log.get(), log.get(), MPFR_RNDN);
  return log;
}

// DeBERTa-v2's map from distances to buckets (He et al. 2021; the formula is
// make_log_bucket_position in its code).
//
// With m = bucket_size / 2, M = max_position - 1 and a = |distance|:
//
//   bucket(a) = a                                            for a <= m
//   bucket(a) = m + ceil((m - 1) ln(a / m) / ln(M / m))      otherwise
//
// For a negative distance, the bucket is negated. FLOAT32_LOG takes logarithms of float32
// quotients, and rounds them and each later operation to float32.
class DebertaBuckets {
 public:
  // bucket_size must be even and positive, and max_position above bucket_size / 2 + 1.
  explicit DebertaBuckets(const v1::Deberta& spec)
      : middle_(spec.bucket_size() / 2),
        farthest_(spec.max_position() - 1),
        rule_(spec.bucket_rule()),
        buckets_per_log_(static_cast<double>(middle_ - 1) / LogRatio(farthest_, middle_)),
        // Python, not torch, computes this quotient, so it is a float64 first.
        float32_log_(RoundedLog(
            static_cast<float>(static_cast<double>(farthest_) / static_cast<double>(middle_)))) {}

  // Returns the bucket for a distance in [0, 2^42] under the rule.
  int64_t BucketOf(int64_t distance) const {
    if (distance <= middle_) return distance;
    return rule_ == v1::BUCKET_RULE_EXACT ? ExactBucketOf(distance) : Float32BucketOf(distance);
  }

 private:
  // Returns true if a is beyond the k-th boundary: (a / m)^(m - 1) > (M / m)^k.
  //
  // If the sides are equal, they are powers of one rational number whose numerator is at least 2.
  // With the exponents' common divisor removed, the exponent of a is then below 42 and that of M
  // below 31. With larger exponents the sides are never equal, so computing with enough bits always
  // settles the comparison.
  bool IsBeyond(int64_t a, int64_t k) const {
    if (k == 0) return middle_ > 1;
    const int64_t divisor = std::gcd(middle_ - 1, k);
    const int64_t s = (middle_ - 1) / divisor;
    k /= divisor;
    constexpr int64_t kMostEqualExponent = 42;
    if (s <= kMostEqualExponent && k <= kMostEqualExponent) {
      return ComparePowers(a, s, farthest_, k, middle_) > 0;
    }
    for (int precision = 128;; precision *= 2) {
      const Real left = LogRatio(a, middle_, precision) * s;
      Real right = LogRatio(farthest_, middle_, precision) * k;
      // Each side is rounded four times.
      const Real difference = left - right;
      mpfr_mul_2si(right.get(), right.get(), 4 - precision, MPFR_RNDU);
      if (mpfr_cmpabs(difference.get(), right.get()) > 0) {
        return mpfr_sgn(difference.get()) > 0;
      }
    }
  }

  // Returns the bucket for a distance a > m.
  int64_t ExactBucketOf(int64_t a) const {
    const double estimate = buckets_per_log_ * LogRatio(a, middle_);
    const double bound = kEstimateBound * (1 + estimate);
    // Only boundaries between the two bounds need a closer look.
    auto k = static_cast<int64_t>(std::ceil(estimate - bound));
    const auto most = static_cast<int64_t>(std::ceil(estimate + bound));
    while (k < most && IsBeyond(a, k)) ++k;
    return middle_ + k;
  }

  int64_t Float32BucketOf(int64_t a) const {
    const auto middle = static_cast<float>(middle_);
    const float log = RoundedLog(static_cast<float>(a) / middle);
    const float steps = std::ceil(log / float32_log_ * static_cast<float>(middle_ - 1));
    return static_cast<int64_t>(steps + middle);
  }

  const int64_t middle_;
  const int64_t farthest_;
  const v1::BucketRule rule_;
  const double buckets_per_log_;  // (m - 1) / ln(M / m), for EXACT
  const float float32_log_;       // ln(M / m), for FLOAT32_LOG
};

// Relative positions whose distances fit in 32 bits, for specs in which each distance is its own
// bucket.
constexpr Range kDistances = {-(int64_t{1} << 31) + 1, int64_t{1} << 31};

// Returns the index for `bucket`, which is negative for keys to the right of the query.
int32_t IndexOf(const v1::Deberta& spec, int64_t bucket) {
  if (spec.term() == v1::DEBERTA_TERM_POSITION_TO_CONTENT) bucket = -bucket;
  if (spec.term() != v1::DEBERTA_TERM_BUCKET) {
    const int64_t span = spec.bucket_size() != 0 ? spec.bucket_size() : spec.max_position();
    bucket = std::clamp<int64_t>(bucket + span, 0, 2 * span - 1);
  }
  return static_cast<int32_t>(bucket);
}

EvaluatorPtr PrepareDeberta(const v1::Deberta& spec) {
  std::optional<DebertaBuckets> buckets;
  if (spec.bucket_size() != 0) buckets.emplace(spec);
  return MakeEvaluator(
      [spec, buckets](const Block& block, std::byte* out, int64_t /*lane_stride_bytes*/) {
        const Range distances = DistancesIn(block.span);
        for (int64_t d = distances.begin; d < distances.end; ++d) {
          const bool ends = buckets.has_value() && spec.edge() == v1::DEBERTA_EDGE_MICROSOFT;
          const int64_t distance = ends ? std::min<int64_t>(d, spec.max_position() - 1) : d;
          const int64_t bucket = buckets.has_value() ? buckets->BucketOf(distance) : distance;
          ForEachAt(d, block.span, [&](int64_t at) {
            // Keys to the left of the query have positive distances.
            const int32_t index = IndexOf(spec, at < 0 ? bucket : -bucket);
            std::memcpy(out + (at - block.span.begin) * sizeof(index), &index, sizeof(index));
          });
        }
      });
}

absl::StatusOr<Encoding> DescribeDeberta(const v1::Deberta& spec, const Tables& /*tables*/) {
  const int32_t least = spec.bucket_size() / 2 + 2;
  if (spec.bucket_size() != 0 && spec.max_position() < least) {
    return Invalid("deberta.max_position: got ", spec.max_position(), ", want at least ", least,
                   " (bucket_size / 2 + 2)");
  }
  const bool are_distances = spec.bucket_size() == 0 && spec.term() == v1::DEBERTA_TERM_BUCKET;
  return Encoding{.structure = Structure::kToeplitz,
                  .domain = are_distances ? kDistances : kRelativePositions,
                  .has_biases = false,
                  .has_buckets = true,
                  .prepare = [spec](const NumberFormat& /*format*/, const KernelSet& /*kernels*/) {
                    return PrepareDeberta(spec);
                  }};
}

const EncodingRegistration kDeberta(v1::TensorSpec::kDebertaFieldNumber, &DescribeDeberta);

}  // namespace
}  // namespace attnbias
