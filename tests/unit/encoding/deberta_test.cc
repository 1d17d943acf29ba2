// SPDX-License-Identifier: Apache-2.0
// Compares DeBERTa's buckets with literal values from the published implementation and with the
// rule in exact integers.
#include <gmp.h>

#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/engine_harness.h"
#include "tests/unit/support/filled.h"

namespace attnbias::deberta_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
constexpr auto kExact = v1::BUCKET_RULE_EXACT;
constexpr auto kFloat32Log = v1::BUCKET_RULE_FLOAT32_LOG;

v1::Deberta Spec(const std::string& term, const std::string& rest = "") {
  return Parse<v1::Deberta>("term: DEBERTA_TERM_" + term + " " + rest);
}

double At(const v1::Deberta& spec, int64_t query, int64_t key) {
  const int64_t at = key - query;
  return Filled(spec, {at, at + 1}, DataType::kI32).numbers[0];
}

// The buckets themselves, for distances that are not clamped.
class Buckets {
 public:
  // Prepares the distances [0, count) and their negatives.
  Buckets(int bucket_size, int max_position, v1::BucketRule rule, int64_t count)
      : spec_(Spec("BUCKET", "edge: DEBERTA_EDGE_HF")) {
    spec_.set_bucket_size(bucket_size);
    spec_.set_max_position(max_position);
    spec_.set_bucket_rule(rule);
    near_ = Filled(spec_, {1 - count, count}, DataType::kI32);
  }

  // Returns the bucket for a distance (query - key) of any size.
  double BucketOf(int64_t distance) const {
    return near_.span.Contains({-distance, 1 - distance}) ? near_.At(0, -distance)
                                                          : At(spec_, distance, 0);
  }

 private:
  v1::Deberta spec_;
  FilledNumbers near_;
};

TEST(DebertaBuckets, MatchPublishedValues) {
  const Buckets buckets(256, 512, kExact, 512);
  std::vector<double> got;
  for (const int64_t a : {0, 1, 127, 128, 129, 130, 150, 200, 256, 300, 400, 510, 511}) {
    got.push_back(buckets.BucketOf(a));
    EXPECT_EQ(buckets.BucketOf(-a), -got.back());
  }
  EXPECT_THAT(got, ElementsAre(0, 1, 127, 128, 129, 130, 143, 169, 192, 207, 233, 255, 255));
}

// Returns the smallest k with a^(m-1) m^k <= M^k m^(m-1), using integers only.
int64_t SmallestK(int64_t a, int64_t m, int64_t most) {
  mpz_t left, right;
  mpz_inits(left, right, nullptr);
  mpz_ui_pow_ui(left, a, m - 1);
  mpz_ui_pow_ui(right, m, m - 1);
  int64_t k = 0;
  for (; mpz_cmp(left, right) > 0; ++k) {
    mpz_mul_ui(left, left, m);
    mpz_mul_ui(right, right, most);
  }
  mpz_clears(left, right, nullptr);
  return k;
}

TEST(DebertaBuckets, MatchTheRuleInIntegers) {
  for (const auto& [bucket_size, max_position] :
       {std::tuple(256, 512), std::tuple(64, 512), std::tuple(128, 256), std::tuple(32, 2048),
        std::tuple(128, 2048), std::tuple(8, 33), std::tuple(10, 81), std::tuple(4, 10),
        std::tuple(2, 100)}) {
    const Buckets buckets(bucket_size, max_position, kExact, 2 * max_position);
    const int64_t m = bucket_size / 2;
    for (int64_t a = m + 1; a < 2 * max_position; a += 1 + a / 256) {
      ASSERT_EQ(buckets.BucketOf(a), m + SmallestK(a, m, max_position - 1))
          << bucket_size << "/" << max_position << " at " << a;
    }
  }
}

// With m = 4, M = 32 and three buckets beyond m, the borders are exactly 8, 16, 32, 64, ..., and
// belong to the preceding buckets.
TEST(DebertaBuckets, BordersBelongToTheLowerBucket) {
  const Buckets buckets(8, 33, kExact, 1);
  for (int64_t k = 1; k < 39; ++k) {
    const int64_t border = 4LL << k;
    EXPECT_EQ(buckets.BucketOf(border), 4 + k);
    EXPECT_EQ(buckets.BucketOf(border + 1), 5 + k);
    EXPECT_EQ(buckets.BucketOf(-border), -(4 + k));
  }
}

TEST(DebertaBuckets, CoverTheFarthestDistances) {
  constexpr int64_t kFarthest = int64_t{1} << 42;
  EXPECT_EQ(Buckets(4096, 2050, kExact, 1).BucketOf(kFarthest), 90105402);
  // The float32 result, as in transformers.
  EXPECT_EQ(Buckets(4096, 2050, kFloat32Log, 1).BucketOf(kFarthest), 90105400);
}

// transformers' make_log_bucket_position with torch 2.15 on a CPU.
TEST(DebertaBuckets, Float32RuleMatchesTorch) {
  const Buckets exact(18, 65, kExact, 65);
  const Buckets float32(18, 65, kFloat32Log, 65);
  EXPECT_EQ(exact.BucketOf(24), 13);
  EXPECT_EQ(float32.BucketOf(24), 14);
  EXPECT_EQ(float32.BucketOf(-24), -14);
  const Buckets shipped(256, 512, kFloat32Log, 4096);
  const Buckets rule(256, 512, kExact, 4096);
  for (int64_t a = 0; a < 4096; ++a) {
    ASSERT_EQ(shipped.BucketOf(a), rule.BucketOf(a)) << a;
  }
}

TEST(Deberta, TermsAreShiftedAndClamped) {
  const v1::Deberta c2p = Spec("CONTENT_TO_POSITION");
  const v1::Deberta p2c = Spec("POSITION_TO_CONTENT");
  const v1::Deberta bucket = Spec("BUCKET");
  // A query 5 after its key is at distance 5.
  EXPECT_EQ(At(bucket, 5, 0), 5);
  EXPECT_EQ(At(bucket, 0, 5), -5);
  EXPECT_EQ(At(c2p, 5, 0), 261);
  EXPECT_EQ(At(c2p, 0, 5), 251);
  EXPECT_EQ(At(p2c, 5, 0), 251);
  EXPECT_EQ(At(p2c, 0, 5), 261);
  EXPECT_EQ(At(bucket, 200, 0), 169);
  EXPECT_EQ(At(c2p, 0, 200), 256 - 169);
}

TEST(Deberta, EdgesDifferBeyondMaxPosition) {
  const std::string hf = "edge: DEBERTA_EDGE_HF";
  for (const bool is_c2p : {true, false}) {
    const std::string term = is_c2p ? "CONTENT_TO_POSITION" : "POSITION_TO_CONTENT";
    const int64_t query = is_c2p ? 0 : 600;
    const int64_t key = is_c2p ? 600 : 0;
    EXPECT_EQ(At(Spec(term), query, key), 1);
    EXPECT_EQ(At(Spec(term, hf), query, key), 0);
    EXPECT_EQ(At(Spec(term), key, query), 511);
    EXPECT_EQ(At(Spec(term, hf), key, query), 511);
  }
  EXPECT_EQ(At(Spec("BUCKET"), 600, 0), 255);
  // 128 + ceil(127 ln(600 / 128) / ln(511 / 128)) = 128 + ceil(141.7...)
  EXPECT_EQ(At(Spec("BUCKET", hf), 600, 0), 270);
}

TEST(Deberta, WithoutBucketsIndicesAreDistances) {
  const std::string few = "bucket_size: 0 max_position: 4";
  EXPECT_THAT(Filled(Parse<v1::Deberta>(few), {-6, 7}, DataType::kI32).numbers,
              ElementsAre(7, 7, 7, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0));
  EXPECT_THAT(Filled(Spec("BUCKET", few), {-2, 3}, DataType::kI32).numbers,
              ElementsAre(2, 1, 0, -1, -2));
}

TEST(Deberta, DistancesBeyond32BitsAreOutOfRange) {
  EXPECT_THAT(EngineHarness().MakePlan(
                  OverPairs(SpecOf(Spec("BUCKET", "bucket_size: 0")), 1, 1, int64_t{1} << 32)),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("deberta")));
}

TEST(Deberta, RejectsMaxPositionWithinTheExactBuckets) {
  EXPECT_THAT(RefusalOf(Parse<v1::Deberta>("max_position: 129")),
              IsInvalid("deberta.max_position: got 129, want at least 130"));
}

}  // namespace
}  // namespace attnbias::deberta_test
