// SPDX-License-Identifier: Apache-2.0
// KERPLE against MPFR's logarithm and power, rounded once.
#include "core/encoding/spec/kerple.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "core/encoding/bias/kerple_reference.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/mpfr_oracle.h"
#include "tests/testing/filled.h"

namespace attnbias::kerple_test {
namespace {

using ::testing::StartsWith;
using Kernel = KerpleKernel;

void SetExact(const KerpleSpec& spec, int64_t head, int64_t distance,
              double scale, mpfr_ptr value) {
  const double p = spec.p[spec.p.size() == 1 ? 0 : head];
  const double a = spec.a[spec.a.size() == 1 ? 0 : head];
  Number other;
  if (spec.kernel == Kernel::kLog) {
    mpfr_set_d(value, a, MPFR_RNDN);
    mpfr_mul_si(value, value, distance, MPFR_RNDN);
    mpfr_add_ui(value, value, 1, MPFR_RNDN);
    mpfr_log(value, value, MPFR_RNDN);
    mpfr_mul_d(value, value, -p, MPFR_RNDN);
  } else {
    mpfr_set_si(value, distance, MPFR_RNDN);
    mpfr_set_d(other, p, MPFR_RNDN);
    mpfr_pow(value, value, other, MPFR_RNDN);
    mpfr_mul_d(value, value, -a, MPFR_RNDN);
  }
  mpfr_mul_d(value, value, scale, MPFR_RNDN);
}

void ExpectRounded(const KerpleSpec& spec, Range span, double scale = 1) {
  Number exact;
  for (const DataType type : kFloatTypes) {
    const FilledNumbers got = Filled(spec, span, type, Scaled(scale));
    for (int64_t head = 0; head < spec.num_heads; ++head) {
      for (int64_t at = span.begin; at < span.end; ++at) {
        SetExact(spec, head, std::abs(at), scale, exact);
        const double want = at == 0 ? 0 : RoundedBy(exact, type);
        ASSERT_TRUE(Same(got.At(head, at), want))
            << NameOf(type) << " head " << head << " at " << at << ": got "
            << got.At(head, at) << ", want " << want;
      }
    }
  }
}

KerpleSpec Random(Kernel kernel, int64_t heads, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0.01, 2);
  KerpleSpec spec{.kernel = kernel, .num_heads = heads};
  for (int64_t head = 0; head < heads; ++head) {
    spec.p.push_back(uniform(random));
    spec.a.push_back(uniform(random));
  }
  return spec;
}

TEST(Kerple, LogIsThePapers) {
  const KerpleSpec spec{
      .kernel = Kernel::kLog, .p = {1}, .a = {0.5}, .num_heads = 1};
  const FilledNumbers got = Filled(spec, {-8, 9}, DataType::kF64);
  EXPECT_TRUE(Same(got.At(0, 0), 0));
  EXPECT_NEAR(got.At(0, 1), -.405465, 1e-6);
  EXPECT_NEAR(got.At(0, -8), -1.609438, 1e-6);
}

TEST(Kerple, IsRoundedOnce) {
  for (const Kernel kernel : {Kernel::kLog, Kernel::kPower}) {
    ExpectRounded(Random(kernel, 5, 1), {-700, 701});
    ExpectRounded(Random(kernel, 2, 2), {4000000, 4000300});
    ExpectRounded(Random(kernel, 2, 3),
                  {-(int64_t{1} << 41), -(int64_t{1} << 41) + 40});
  }
}

TEST(Kerple, IsRoundedOnceWhenScaled) {
  for (const double scale : {0.125, -0.08838834764831845, 1e-300, -1e305}) {
    for (const Kernel kernel : {Kernel::kLog, Kernel::kPower}) {
      ExpectRounded(Random(kernel, 2, 4), {-100, 40}, scale);
    }
  }
}

TEST(Kerple, IsRoundedOnceForExtremeParameters) {
  for (const double p : {1e-30, 1e-9, 1.0, 2.0}) {
    for (const double a : {1e-30, 1e-12, 1.0, 1e30}) {
      for (const Kernel kernel : {Kernel::kLog, Kernel::kPower}) {
        ExpectRounded({.kernel = kernel, .p = {p}, .a = {a}, .num_heads = 1},
                      {-20, 20});
      }
    }
  }
}

// Powers that are integers meet the middle between two elements exactly.
TEST(Kerple, DecidesTies) {
  for (const double p : {0.25, 0.5, 1.0, 1.5, 2.0}) {
    ExpectRounded(
        {.kernel = Kernel::kPower, .p = {p}, .a = {1, 0.5, 3}, .num_heads = 3},
        {-5000, 1});
  }
}

TEST(Kerple, ReferenceAgreesWithTheEvaluator) {
  for (const Kernel kernel : {Kernel::kLog, Kernel::kPower}) {
    const KerpleSpec spec{
        .kernel = kernel, .p = {0.7}, .a = {0.3}, .num_heads = 1};
    for (const DataType type : kFloatTypes) {
      const FilledNumbers got = Filled(spec, {0, 50}, type, Scaled(1.5));
      for (int64_t d = 0; d < 50; ++d) {
        std::byte out[8];
        ReferenceKerple({spec, 0}, d, {type, 1.5}, out);
        ASSERT_TRUE(Same(ElementAt(type, out), got.At(0, d)));
      }
    }
  }
}

TEST(Kerple, OneParameterServesAllHeads) {
  const KerpleSpec one{
      .kernel = Kernel::kLog, .p = {0.5}, .a = {1, 2}, .num_heads = 2};
  const KerpleSpec two{
      .kernel = Kernel::kLog, .p = {0.5, 0.5}, .a = {1, 2}, .num_heads = 2};
  EXPECT_EQ(Filled(one, {-9, 9}, DataType::kF32).numbers,
            Filled(two, {-9, 9}, DataType::kF32).numbers);
}

TEST(Kerple, BitsDoNotDependOnHowTheyAreCut) {
  for (const Kernel kernel : {Kernel::kLog, Kernel::kPower}) {
    const KerpleSpec spec = Random(kernel, 3, 5);
    EXPECT_EQ(Filled(spec, {-300, 300}, DataType::kF64).numbers,
              Filled(spec, {-300, 300}, DataType::kF64, {}, 0, 7).numbers);
  }
}

TEST(Kerple, IdentityChangesWithEveryField) {
  const auto spec = [](Kernel kernel, double p, double a, int64_t heads) {
    return KerpleSpec{.kernel = kernel, .p = {p}, .a = {a}, .num_heads = heads};
  };
  ExpectAllDifferent({IdentityOf(spec(Kernel::kLog, 1, 2, 1)),
                      IdentityOf(spec(Kernel::kPower, 1, 2, 1)),
                      IdentityOf(spec(Kernel::kLog, 2, 1, 1)),
                      IdentityOf(spec(Kernel::kLog, 1, 1, 1)),
                      IdentityOf(spec(Kernel::kLog, 1, 2, 2)),
                      IdentityOf(spec(Kernel::kLog, 1, 2, 1), Scaled(2))});
}

struct BadSpec {
  const char* name;
  KerpleSpec spec;
  Output output;
  const char* message;
};

class BadKerple : public ::testing::TestWithParam<BadSpec> {};

TEST_P(BadKerple, IsRefusedByName) {
  EXPECT_THAT(MakeEncoding(GetParam().spec, GetParam().output),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith(GetParam().message)));
}

KerpleSpec Log(std::vector<double> p, std::vector<double> a, int64_t heads) {
  return {.kernel = Kernel::kLog,
          .p = std::move(p),
          .a = std::move(a),
          .num_heads = heads};
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadKerple,
    ::testing::Values(
        BadSpec{"NoKernel", {.num_heads = 1}, {}, "kerple.kernel: not set"},
        BadSpec{"NoHeads", Log({1}, {1}, 0), {}, "kerple.num_heads: not set"},
        BadSpec{"NoP",
                Log({}, {1}, 2),
                {},
                "kerple.p: got 0 numbers, want 2 (num_heads), or one"},
        BadSpec{"TooManyA",
                Log({1}, {1, 2, 3}, 2),
                {},
                "kerple.a: got 3 numbers, want 2"},
        BadSpec{"ZeroP", Log({0}, {1}, 1), {}, "kerple.p[0]: got 0, want"},
        BadSpec{"NegativeA", Log({1}, {1, -1}, 2), {}, "kerple.a[1]: got -1"},
        BadSpec{"NanA", Log({1}, {NAN}, 1), {}, "kerple.a[0]: got nan"},
        BadSpec{"InfiniteP", Log({INFINITY}, {1}, 1), {}, "kerple.p[0]: "},
        BadSpec{
            "PowerAboveTwo",
            {.kernel = Kernel::kPower, .p = {2.5}, .a = {1}, .num_heads = 1},
            {},
            "kerple.p[0]: got 2.5, want a number in [1e-30, 2]"},
        BadSpec{"Buckets", Log({1}, {1}, 1), WithValues(Values::kBuckets),
                "output.values: got BUCKETS"},
        BadSpec{"ScaleZero", Log({1}, {1}, 1), Scaled(0),
                "output.scale: got 0"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace attnbias::kerple_test
