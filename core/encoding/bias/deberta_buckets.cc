// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/bias/deberta_buckets.h"

#include <cmath>
#include <cstdlib>
#include <numeric>

#include "core/encoding/common/powers.h"
#include "core/numerics/elementary.h"
#include "core/numerics/real.h"

namespace attnbias {
namespace {

// Far more than the few roundings of a logarithm in doubles may cost, however
// good the machine's library is.
constexpr double kEstimateBound = 0x1p-40;

// ln(numerator / denominator)
double LogRatio(int64_t numerator, int64_t denominator) {
  return std::log1p(static_cast<double>(numerator - denominator) /
                    static_cast<double>(denominator));
}

// Sets `value` to ln(numerator / denominator), within 2^(1 - precision) of it.
void SetLog(int64_t numerator, int64_t denominator, Real& value) {
  mpfr_set_si(value.get(), numerator - denominator, MPFR_RNDN);
  mpfr_div_si(value.get(), value.get(), denominator, MPFR_RNDN);
  mpfr_log1p(value.get(), value.get(), MPFR_RNDN);
}

}  // namespace

DebertaBuckets::DebertaBuckets(int64_t bucket_size, int64_t max_position,
                               v1::BucketRule rule)
    : middle_(bucket_size / 2),
      farthest_(max_position - 1),
      rule_(rule),
      buckets_per_log_(static_cast<double>(middle_ - 1) /
                       LogRatio(farthest_, middle_)),
      // This quotient is Python's, and not torch's: float64 first.
      float32_log_(RoundedLog(static_cast<float>(
          static_cast<double>(farthest_) / static_cast<double>(middle_)))) {}

// Two sides that are equal are powers of one rational number, whose numerator
// is at least 2: then, without the exponents' common divisor, that of a is
// below 42 and that of M below 31. Larger exponents never give equal sides, so
// that enough bits decide.
bool DebertaBuckets::IsBeyond(int64_t a, int64_t k) const {
  if (k == 0) return middle_ > 1;
  const int64_t divisor = std::gcd(middle_ - 1, k);
  const int64_t s = (middle_ - 1) / divisor;
  k /= divisor;
  constexpr int64_t kMostEqualExponent = 42;
  if (s <= kMostEqualExponent && k <= kMostEqualExponent) {
    return ComparePowers(a, s, farthest_, k, middle_) > 0;
  }
  const RealCacheScope cache_scope;
  for (int precision = 128;; precision *= 2) {
    Real left(precision);
    Real right(precision);
    SetLog(a, middle_, left);
    SetLog(farthest_, middle_, right);
    mpfr_mul_si(left.get(), left.get(), s, MPFR_RNDN);
    mpfr_mul_si(right.get(), right.get(), k, MPFR_RNDN);
    // Four roundings of each side.
    Real difference(precision);
    mpfr_sub(difference.get(), left.get(), right.get(), MPFR_RNDN);
    mpfr_mul_2si(right.get(), right.get(), 4 - precision, MPFR_RNDU);
    if (mpfr_cmpabs(difference.get(), right.get()) > 0) {
      return mpfr_sgn(difference.get()) > 0;
    }
  }
}

int64_t DebertaBuckets::ExactBucketOf(int64_t a) const {
  const double estimate = buckets_per_log_ * LogRatio(a, middle_);
  const double bound = kEstimateBound * (1 + estimate);
  // In doubt only where a border lies between the two.
  auto k = static_cast<int64_t>(std::ceil(estimate - bound));
  const auto most = static_cast<int64_t>(std::ceil(estimate + bound));
  while (k < most && IsBeyond(a, k)) ++k;
  return middle_ + k;
}

int64_t DebertaBuckets::Float32BucketOf(int64_t a) const {
  const auto middle = static_cast<float>(middle_);
  const float log = RoundedLog(static_cast<float>(a) / middle);
  const float steps =
      std::ceil(log / float32_log_ * static_cast<float>(middle_ - 1));
  return static_cast<int64_t>(steps + middle);
}

int64_t DebertaBuckets::BucketOf(int64_t distance) const {
  const int64_t a = std::abs(distance);
  if (a <= middle_) return distance;
  const int64_t bucket =
      rule_ == v1::BUCKET_RULE_EXACT ? ExactBucketOf(a) : Float32BucketOf(a);
  return distance < 0 ? -bucket : bucket;
}

}  // namespace attnbias
