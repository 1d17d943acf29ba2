// SPDX-License-Identifier: Apache-2.0
// Sandwich against a sum of MPFR's cosines, rounded once.
#include "core/encoding/spec/sandwich.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/encoding/bias/sandwich_reference.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/mpfr_oracle.h"
#include "tests/testing/filled.h"

namespace attnbias::sandwich_test {
namespace {

using ::testing::StartsWith;

// The sum over k of cos(distance base^(-2k/dim)).
void SetSum(const SandwichSpec& spec, int64_t distance, mpfr_ptr sum) {
  Number term;
  Number exponent;
  mpfr_set_zero(sum, 0);
  for (int64_t k = 0; k < spec.dim / 2; ++k) {
    mpfr_set_si(exponent, -2 * k, MPFR_RNDN);
    mpfr_div_si(exponent, exponent, spec.dim, MPFR_RNDN);
    mpfr_set_d(term, spec.base, MPFR_RNDN);
    mpfr_pow(term, term, exponent, MPFR_RNDN);
    mpfr_mul_si(term, term, distance, MPFR_RNDN);
    mpfr_cos(term, term, MPFR_RNDN);
    mpfr_add(sum, sum, term, MPFR_RNDN);
  }
}

void ExpectRounded(const SandwichSpec& spec, Range span, double scale = 1) {
  Number sum;
  Number value;
  std::map<DataType, FilledNumbers> got;
  for (const DataType type : kFloatTypes) {
    got[type] = Filled(spec, span, type, Scaled(scale));
  }
  for (int64_t at = span.begin; at < span.end; ++at) {
    SetSum(spec, at, sum);
    for (int64_t head = 0; head < spec.num_heads; ++head) {
      mpfr_mul_d(value, sum, scale, MPFR_RNDN);
      mpfr_mul_si(value, value, spec.num_heads, MPFR_RNDN);
      mpfr_div_si(value, value, 8 * (head + 1), MPFR_RNDN);
      for (const DataType type : kFloatTypes) {
        const double want = RoundedBy(value, type);
        ASSERT_TRUE(Same(got[type].At(head, at), want))
            << NameOf(type) << " head " << head << " at " << at << ": got "
            << got[type].At(head, at) << ", want " << want;
      }
    }
  }
}

TEST(Sandwich, SumsAreThePublishedOnes) {
  // Head 0 of 8 has the sum itself.
  const FilledNumbers got =
      Filled(SandwichSpec{.num_heads = 8}, {-100, 101}, DataType::kF64);
  EXPECT_EQ(got.At(0, 0), 64);
  EXPECT_EQ(got.At(3, 0), 16);
  EXPECT_NEAR(got.At(0, 1), 62.0936838, 1e-7);
  EXPECT_NEAR(got.At(0, -10), 42.8200229, 1e-7);
  EXPECT_NEAR(got.At(0, 100), 30.5434547, 1e-7);
  EXPECT_NEAR(got.At(7, 100), 30.5434547 / 8, 1e-8);
}

TEST(Sandwich, IsRoundedOnce) {
  ExpectRounded({.num_heads = 12}, {-40, 300});
  ExpectRounded({.num_heads = 3, .dim = 6}, {-600, 600});
  ExpectRounded({.num_heads = 5, .dim = 2}, {-900, 10});
  ExpectRounded({.num_heads = 2, .dim = 34, .base = 500000},
                {1000000, 1000300});
  ExpectRounded({.num_heads = 2, .dim = 10, .base = 1},
                {(int64_t{1} << 41) - 5, (int64_t{1} << 41) + 5});
  ExpectRounded({.num_heads = 1, .dim = 64, .base = 1e18}, {-20, 20});
}

// A cosine alone comes nearest to 0 where a multiple of pi / 2 nearly is an
// integer: at the numerators of its continued fraction.
TEST(Sandwich, IsRoundedOnceNearZeroCrossings) {
  for (const int64_t at : {11, 344, 51819, 573204, 4846147, 37362253}) {
    ExpectRounded({.num_heads = 3, .dim = 2}, {at, at + 1});
  }
}

TEST(Sandwich, IsRoundedOnceWhenScaled) {
  for (const double scale :
       {0.08838834764831845, -3.0, 1e-300, 5e-324, 1e303}) {
    ExpectRounded({.num_heads = 3, .dim = 8}, {-30, 5}, scale);
  }
}

TEST(Sandwich, ReferenceAgreesWithTheEvaluator) {
  const SandwichSpec spec{.num_heads = 7, .dim = 20};
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

TEST(Sandwich, BitsDependNeitherOnTheCutNorOnTheKernels) {
  const SandwichSpec spec{.num_heads = 3};
  const FilledNumbers whole = Filled(spec, {-700, 700}, DataType::kF64);
  for (const KernelSet* kernels : SupportedKernelSets()) {
    EXPECT_EQ(
        Filled(spec, {-700, 700}, DataType::kF64, {}, 0, 33, *kernels).numbers,
        whole.numbers);
  }
}

TEST(Sandwich, IdentityChangesWithEveryField) {
  ExpectAllDifferent({IdentityOf(SandwichSpec{.num_heads = 2}),
                      IdentityOf(SandwichSpec{.num_heads = 3}),
                      IdentityOf(SandwichSpec{.num_heads = 2, .dim = 64}),
                      IdentityOf(SandwichSpec{.num_heads = 2, .base = 500}),
                      IdentityOf(SandwichSpec{.num_heads = 2}, Scaled(2))});
}

struct BadSpec {
  const char* name;
  SandwichSpec spec;
  Output output;
  const char* message;
};

class BadSandwich : public ::testing::TestWithParam<BadSpec> {};

TEST_P(BadSandwich, IsRefusedByName) {
  EXPECT_THAT(MakeEncoding(GetParam().spec, GetParam().output),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadSandwich,
    ::testing::Values(
        BadSpec{"NoHeads", {}, {}, "sandwich.num_heads: not set, want"},
        BadSpec{"OddDim",
                {.num_heads = 1, .dim = 7},
                {},
                "sandwich.dim: got 7, want an even integer in [2, 65536]"},
        BadSpec{"NoDim", {.num_heads = 1, .dim = 0}, {}, "sandwich.dim: got 0"},
        BadSpec{"HugeDim",
                {.num_heads = 1, .dim = 65538},
                {},
                "sandwich.dim: got 65538"},
        BadSpec{"SmallBase",
                {.num_heads = 1, .base = 0.5},
                {},
                "sandwich.base: got 0.5, want a number in [1, 1e+18]"},
        BadSpec{"NanBase",
                {.num_heads = 1, .base = NAN},
                {},
                "sandwich.base: got nan"},
        BadSpec{"Buckets",
                {.num_heads = 1},
                WithValues(Values::kBuckets),
                "output.values: got BUCKETS"},
        BadSpec{"ScaleNan",
                {.num_heads = 1},
                Scaled(NAN),
                "output.scale: got nan"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace attnbias::sandwich_test
