// SPDX-License-Identifier: Apache-2.0
// Compares Sandwich with a sum of MPFR's cosines, rounded once.
#include <string>

#include "core/encoding/bias/references.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/expect_rounded.h"

namespace attnbias::sandwich_test {
namespace {

v1::Sandwich Spec(const std::string& fields) { return Completed(Parse<v1::Sandwich>(fields)); }

// Sets `sum` to the sum over k of cos(distance base^(-2k/dim)).
void SetSum(const v1::Sandwich& spec, int64_t distance, mpfr_ptr sum) {
  Number term;
  Number exponent;
  mpfr_set_zero(sum, 0);
  for (int64_t k = 0; k < spec.dim() / 2; ++k) {
    mpfr_set_si(exponent, -2 * k, MPFR_RNDN);
    mpfr_div_si(exponent, exponent, spec.dim(), MPFR_RNDN);
    mpfr_set_d(term, spec.base(), MPFR_RNDN);
    mpfr_pow(term, term, exponent, MPFR_RNDN);
    mpfr_mul_si(term, term, distance, MPFR_RNDN);
    mpfr_cos(term, term, MPFR_RNDN);
    mpfr_add(sum, sum, term, MPFR_RNDN);
  }
}

void ExpectRounded(const v1::Sandwich& spec, Range span, double scale = 1) {
  Number sum;
  ExpectLanesRounded(spec, span, scale, [&](int64_t head, int64_t at, mpfr_ptr value) {
    if (head == 0) SetSum(spec, at, sum);
    mpfr_mul_si(value, sum, spec.num_heads(), MPFR_RNDN);
    mpfr_div_si(value, value, 8 * (head + 1), MPFR_RNDN);
  });
}

TEST(Sandwich, SumsMatchPublishedValues) {
  // For head 0 of 8, the value is the sum itself.
  const FilledNumbers got = Filled(Spec("num_heads: 8"), {-100, 101}, DataType::kF64);
  EXPECT_EQ(got.At(0, 0), 64);
  EXPECT_EQ(got.At(3, 0), 16);
  EXPECT_NEAR(got.At(0, 1), 62.0936838, 1e-7);
  EXPECT_NEAR(got.At(0, -10), 42.8200229, 1e-7);
  EXPECT_NEAR(got.At(0, 100), 30.5434547, 1e-7);
  EXPECT_NEAR(got.At(7, 100), 30.5434547 / 8, 1e-8);
}

TEST(Sandwich, IsRoundedOnce) {
  ExpectRounded(Spec("num_heads: 12"), {-40, 300});
  ExpectRounded(Spec("num_heads: 3 dim: 6"), {-600, 600});
  ExpectRounded(Spec("num_heads: 5 dim: 2"), {-900, 10});
  ExpectRounded(Spec("num_heads: 2 dim: 34 base: 500000"), {1000000, 1000300});
  ExpectRounded(Spec("num_heads: 2 dim: 10 base: 1"),
                {(int64_t{1} << 41) - 5, (int64_t{1} << 41) + 5});
  ExpectRounded(Spec("num_heads: 1 dim: 64 base: 1e18"), {-20, 20});
}

// A single cosine comes closest to 0 where a multiple of pi / 2 is nearly an integer: at the
// numerators of its continued fraction.
TEST(Sandwich, IsRoundedOnceNearZeroCrossings) {
  for (const int64_t at : {11, 344, 51819, 573204, 4846147, 37362253}) {
    ExpectRounded(Spec("num_heads: 3 dim: 2"), {at, at + 1});
  }
}

TEST(Sandwich, IsRoundedOnceWhenScaled) {
  for (const double scale : {0.08838834764831845, -3.0, 1e-300, 5e-324, 1e303}) {
    ExpectRounded(Spec("num_heads: 3 dim: 8"), {-30, 5}, scale);
  }
}

TEST(Sandwich, ReferenceAgreesWithTheEvaluator) {
  const v1::Sandwich spec = Spec("num_heads: 7 dim: 20");
  for (const DataType type : kFloatTypes) {
    const FilledNumbers got = Filled(spec, {0, 40}, type, Scaled(0.3));
    for (int64_t head = 0; head < 7; ++head) {
      for (int64_t d = 0; d < 40; ++d) {
        std::byte out[8];
        ReferenceSandwich(spec, head, d, {type, 0.3}, out);
        ASSERT_TRUE(Same(ElementAt(type, out), got.At(head, d)));
      }
    }
  }
}

}  // namespace
}  // namespace attnbias::sandwich_test
