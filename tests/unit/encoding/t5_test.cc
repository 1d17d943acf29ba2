// SPDX-License-Identifier: Apache-2.0
// Compares T5's buckets with the algebraic rule in exact integers and with literal matrices from
// the published implementation.
#include <gmp.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/encoding/common/bias_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/filled.h"

namespace attnbias::t5_test {
namespace {

using ::testing::ElementsAre;

int64_t Bucket(const T5BucketRule& rule, int64_t relative_position) {
  return T5Buckets(rule).SpanFrom(relative_position).row;
}

// First |relative position| of each bucket to the left of the query.
std::vector<int64_t> Starts(const T5BucketRule& rule) {
  const T5Buckets buckets(rule);
  std::vector<int64_t> starts;
  int64_t last = -1;
  for (int64_t n = 0; n <= rule.max_distance; ++n) {
    const int64_t bucket = buckets.SpanFrom(-n).row;
    if (bucket != last) starts.push_back(n);
    last = bucket;
  }
  return starts;
}

TEST(T5Buckets, StartsMatchPublishedConfigurations) {
  EXPECT_THAT(Starts({32, 128, true}),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91));
  EXPECT_THAT(Starts({32, 128, false}),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 19, 21, 24, 27,
                          31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113));
  EXPECT_THAT(Starts({64, 256, true}),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 23, 27, 32,
                          39, 46, 54, 64, 77, 91, 108, 128, 153, 182, 216));
  const std::vector<int64_t> wavlm = Starts({320, 800, true});
  EXPECT_THAT(std::vector<int64_t>(wavlm.begin() + 80, wavlm.begin() + 92),
              ElementsAre(80, 83, 85, 88, 90, 93, 96, 98, 101, 104, 107, 110));
  EXPECT_THAT(std::vector<int64_t>(wavlm.end() - 2, wavlm.end()), ElementsAre(756, 778));
}

TEST(T5Buckets, KeysToTheRightUseSecondHalfOrBucketZero) {
  const T5BucketRule encoder = {32, 128, true};
  for (int64_t n = 1; n < 300; ++n) {
    EXPECT_EQ(Bucket(encoder, n), Bucket(encoder, -n) + 16) << n;
    EXPECT_EQ(Bucket({32, 128, false}, n), 0) << n;
  }
}

TEST(T5Buckets, TenByTenEncoderMatrixHasKnownBuckets) {
  std::vector<int64_t> first;
  std::vector<int64_t> last;
  for (int64_t j = 0; j < 10; ++j) {
    first.push_back(Bucket({32, 128, true}, j));
    last.push_back(Bucket({32, 128, true}, j - 9));
  }
  EXPECT_THAT(first, ElementsAre(0, 17, 18, 19, 20, 21, 22, 23, 24, 24));
  EXPECT_THAT(last, ElementsAre(8, 8, 7, 6, 5, 4, 3, 2, 1, 0));
}

TEST(T5Buckets, ExactRuleDecidesExactBorders) {
  struct Case {
    int64_t per_side, max_distance, distance, bucket;
  };
  for (const Case& c : {Case{16, 800, 80, 12}, Case{20, 1000, 100, 15}, Case{40, 2000, 200, 30},
                        Case{100, 128, 80, 75}, Case{128, 100, 80, 96}, Case{40, 640, 40, 24}}) {
    EXPECT_EQ(Bucket({c.per_side, c.max_distance, false}, -c.distance), c.bucket)
        << c.per_side << "/" << c.max_distance;
    EXPECT_EQ(Bucket({2 * c.per_side, c.max_distance, true}, -c.distance), c.bucket)
        << c.per_side << "/" << c.max_distance;
  }
}

TEST(T5Buckets, RulesDifferWhereTorchDiffersFromAlgebra) {
  EXPECT_EQ(Bucket({24, 889, false}, -621), 22);
  EXPECT_EQ(Bucket({24, 889, false, v1::BUCKET_RULE_FLOAT32_LOG}, -621), 23);
}

// Returns true if distance n lies in bucket m + k or later, using integers only.
bool Reaches(int64_t n, int64_t m, int64_t s, int64_t max_distance, int64_t k) {
  mpz_t left, right, factor;
  mpz_inits(left, right, factor, nullptr);
  mpz_ui_pow_ui(left, n, s);
  mpz_ui_pow_ui(factor, m, k);
  mpz_mul(left, left, factor);
  mpz_ui_pow_ui(right, max_distance, k);
  mpz_ui_pow_ui(factor, m, s);
  mpz_mul(right, right, factor);
  const bool reaches = mpz_cmp(left, right) >= 0;
  mpz_clears(left, right, factor, nullptr);
  return reaches;
}

TEST(T5Buckets, ExactRuleMatchesAlgebraForEveryDistance) {
  for (int64_t per_side : {2, 3, 5, 8, 11, 16, 24, 33}) {
    for (int64_t max_distance : {17, 20, 64, 100, 128, 333}) {
      const int64_t m = per_side / 2;
      const int64_t s = per_side - m;
      const T5Buckets buckets({per_side, max_distance, false});
      for (int64_t n = 0; n < max_distance + 40; ++n) {
        int64_t expected = std::min(n, m);
        while (n >= m && expected < per_side - 1 &&
               Reaches(n, m, s, max_distance, expected - m + 1)) {
          ++expected;
        }
        ASSERT_EQ(buckets.SpanFrom(-n).row, expected)
            << per_side << "/" << max_distance << " at " << n;
      }
    }
  }
}

TEST(T5Buckets, StayWithinTableAndSkipUnusedBucket) {
  for (int64_t num_buckets = 4; num_buckets <= 64; num_buckets += 2) {
    for (int64_t max_distance : {33, 128, 1000}) {
      for (const auto rounding : {v1::BUCKET_RULE_EXACT, v1::BUCKET_RULE_FLOAT32_LOG}) {
        const T5Buckets buckets({num_buckets, max_distance, true, rounding});
        for (int64_t r = -5000; r < 5000; ++r) {
          const int64_t bucket = buckets.SpanFrom(r).row;
          ASSERT_GE(bucket, 0);
          ASSERT_LT(bucket, num_buckets);
          ASSERT_NE(bucket, num_buckets / 2) << r;
        }
      }
    }
  }
}

TEST(T5Buckets, EachSpanHasOneBucket) {
  for (bool bidirectional : {true, false}) {
    const T5Buckets buckets({32, 128, bidirectional});
    for (int64_t r = -300; r < 300;) {
      const RowSpan span = buckets.SpanFrom(r);
      ASSERT_GT(span.end, r);
      for (int64_t i = r; i < std::min<int64_t>(span.end, 300); ++i) {
        ASSERT_EQ(buckets.SpanFrom(i).row, span.row) << i;
      }
      // A decoder's keys to the right share bucket 0 with the query itself.
      if (span.end < 300 && bidirectional) {
        EXPECT_NE(buckets.SpanFrom(span.end).row, span.row) << r;
      }
      r = std::min<int64_t>(span.end, 300);
    }
  }
}

// table[b, h] = b + h / 4
v1::T5 BiasSpec(bool bidirectional) {
  std::vector<double> values;
  for (int i = 0; i < 32 * 4; ++i) values.push_back(i / 4 + i % 4 * 0.25);
  v1::T5 spec;
  spec.set_bidirectional(bidirectional);
  *spec.mutable_table() = Ref(TableOf<float>({32, 4}, values));
  return spec;
}

// Returns one head's values.
std::vector<double> Diagonals(bool bidirectional, int64_t head, Range span,
                              const std::string& output = "") {
  const std::vector<double> all =
      Filled(BiasSpec(bidirectional), span, DataType::kF32, output).numbers;
  const auto begin = all.begin() + head * span.size();
  return {begin, begin + span.size()};
}

TEST(T5Bias, GathersTheTable) {
  EXPECT_THAT(Diagonals(true, 1, {-2, 5}),
              ElementsAre(2.25, 1.25, 0.25, 17.25, 18.25, 19.25, 20.25));
  EXPECT_THAT(Diagonals(false, 0, {-5, 2}), ElementsAre(5, 4, 3, 2, 1, 0, 0));
}

TEST(T5Bias, DecodeRowAtPosition200HasKnownValues) {
  const std::vector<double> row = Diagonals(false, 0, {-200, 1});
  std::vector<double> seen;
  for (int j : {0, 72, 73, 87, 88, 101, 184, 185, 199, 200}) {
    seen.push_back(row[j]);
  }
  EXPECT_THAT(seen, ElementsAre(31, 31, 31, 31, 30, 30, 16, 15, 1, 0));
}

TEST(T5Bias, SumsOfWholeMatricesMatchKnownValues) {
  const auto sums = [](bool bidirectional, int64_t length) {
    std::vector<double> result;
    for (int64_t head = 0; head < 4; ++head) {
      const std::vector<double> diagonals = Diagonals(bidirectional, head, {1 - length, length});
      double sum = 0;
      for (int64_t r = 1 - length; r < length; ++r) {
        sum += diagonals[r + length - 1] * static_cast<double>(length - std::abs(r));
      }
      result.push_back(sum);
    }
    return result;
  };
  EXPECT_THAT(sums(true, 512), ElementsAre(5721546, 5787082, 5852618, 5918154));
  EXPECT_THAT(sums(false, 1024), ElementsAre(15341065, 15603209, 15865353, 16127497));
}

TEST(T5Bias, ScaleIsAppliedBeforeRounding) {
  // 3 x 0.1 in doubles would round twice, so the test compares with an exact product of a float and
  // a double.
  const double scale = 0.1;
  const std::vector<double> row = Diagonals(true, 0, {-3, 1}, Scaled(scale));
  for (int i = 0; i < 4; ++i) {
    const long double exact = static_cast<long double>(3 - i) * static_cast<long double>(scale);
    EXPECT_EQ(row[i], static_cast<float>(exact));
  }
}

TEST(T5, RejectsInconsistentBuckets) {
  const auto refusal = [](const std::string& fields, int64_t rows = 32) {
    return RefusalOf(Changed(BiasSpec(true), fields, {{"table", {rows, 4}}}));
  };
  EXPECT_THAT(refusal("num_buckets: 33", 33),
              IsInvalid("t5.num_buckets: got 33, want an even number"));
  EXPECT_THAT(refusal("num_buckets: 2", 2),
              IsInvalid("t5.num_buckets: got 2, want an even number, at "
                        "least 4, when bidirectional"));
  EXPECT_THAT(refusal("max_distance: 8"),
              IsInvalid("t5.max_distance: got 8, want more than the 8 exact "
                        "buckets per side"));
  EXPECT_THAT(refusal("num_heads: 5"), IsInvalid("t5.table: got shape [32, 4], want [num_buckets, "
                                                 "num_heads] = [32, 5]"));
}

}  // namespace
}  // namespace attnbias::t5_test
