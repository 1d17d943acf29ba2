// SPDX-License-Identifier: Apache-2.0
// Compares KERPLE with MPFR's logarithm and power, rounded once.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "core/encoding/bias/references.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/expect_rounded.h"

namespace attnbias::kerple_test {
namespace {

constexpr auto kKernels = {v1::KERPLE_KERNEL_LOG, v1::KERPLE_KERNEL_POWER};

v1::Kerple Spec(v1::KerpleKernel kernel, const std::vector<double>& p,
                const std::vector<double>& a) {
  v1::Kerple spec;
  spec.set_kernel(kernel);
  spec.mutable_p()->Add(p.begin(), p.end());
  spec.mutable_a()->Add(a.begin(), a.end());
  spec.set_num_heads(std::max(spec.p_size(), spec.a_size()));
  return spec;
}

void ExpectRounded(const v1::Kerple& spec, Range span, double scale = 1) {
  Number power;
  ExpectLanesRounded(spec, span, scale, [&](int64_t lane, int64_t at, mpfr_ptr value) {
    const int head = static_cast<int>(lane);
    const double p = spec.p(spec.p_size() == 1 ? 0 : head);
    const double a = spec.a(spec.a_size() == 1 ? 0 : head);
    if (spec.kernel() == v1::KERPLE_KERNEL_LOG) {
      mpfr_set_d(value, a, MPFR_RNDN);
      mpfr_mul_si(value, value, std::abs(at), MPFR_RNDN);
      mpfr_add_ui(value, value, 1, MPFR_RNDN);
      mpfr_log(value, value, MPFR_RNDN);
      mpfr_mul_d(value, value, -p, MPFR_RNDN);
    } else {
      mpfr_set_si(value, std::abs(at), MPFR_RNDN);
      mpfr_set_d(power, p, MPFR_RNDN);
      mpfr_pow(value, value, power, MPFR_RNDN);
      mpfr_mul_d(value, value, -a, MPFR_RNDN);
    }
  });
}

v1::Kerple Random(v1::KerpleKernel kernel, int64_t heads, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0.01, 2);
  std::vector<double> p(heads);
  std::vector<double> a(heads);
  for (int64_t head = 0; head < heads; ++head) {
    p[head] = uniform(random);
    a[head] = uniform(random);
  }
  return Spec(kernel, p, a);
}

TEST(Kerple, LogMatchesThePaper) {
  const FilledNumbers got =
      Filled(Spec(v1::KERPLE_KERNEL_LOG, {1}, {0.5}), {-8, 9}, DataType::kF64);
  EXPECT_TRUE(Same(got.At(0, 0), 0));
  EXPECT_NEAR(got.At(0, 1), -.405465, 1e-6);
  EXPECT_NEAR(got.At(0, -8), -1.609438, 1e-6);
}

TEST(Kerple, IsRoundedOnce) {
  for (const v1::KerpleKernel kernel : kKernels) {
    ExpectRounded(Random(kernel, 5, 1), {-700, 701});
    ExpectRounded(Random(kernel, 2, 2), {4000000, 4000300});
    ExpectRounded(Random(kernel, 2, 3), {-(int64_t{1} << 41), -(int64_t{1} << 41) + 40});
  }
}

TEST(Kerple, IsRoundedOnceWhenScaled) {
  for (const double scale : {0.125, -0.08838834764831845, 1e-300, -1e305}) {
    for (const v1::KerpleKernel kernel : kKernels) {
      ExpectRounded(Random(kernel, 2, 4), {-100, 40}, scale);
    }
  }
}

TEST(Kerple, IsRoundedOnceForExtremeParameters) {
  for (const double p : {1e-30, 1e-9, 1.0, 2.0}) {
    for (const double a : {1e-30, 1e-12, 1.0, 1e30}) {
      for (const v1::KerpleKernel kernel : kKernels) {
        ExpectRounded(Spec(kernel, {p}, {a}), {-20, 20});
      }
    }
  }
}

// Integer powers lie exactly between two elements.
TEST(Kerple, DecidesTies) {
  for (const double p : {0.25, 0.5, 1.0, 1.5, 2.0}) {
    ExpectRounded(Spec(v1::KERPLE_KERNEL_POWER, {p}, {1, 0.5, 3}), {-5000, 1});
  }
}

TEST(Kerple, ReferenceAgreesWithTheEvaluator) {
  for (const v1::KerpleKernel kernel : kKernels) {
    const v1::Kerple spec = Spec(kernel, {0.7}, {0.3});
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
  const auto numbers = [](const std::vector<double>& p) {
    return Filled(Spec(v1::KERPLE_KERNEL_LOG, p, {1, 2}), {-9, 9}, DataType::kF32).numbers;
  };
  EXPECT_EQ(numbers({0.5}), numbers({0.5, 0.5}));
}

TEST(Kerple, RejectsParameterCountOtherThanHeads) {
  EXPECT_THAT(
      RefusalOf(Parse<v1::Kerple>("kernel: KERPLE_KERNEL_LOG p: 1 a: [1, 2, 3] num_heads: 2")),
      IsInvalid("kerple.a: got 3 numbers, want 2 or 1 (num_heads or 1)"));
}

TEST(Kerple, RejectsPowersAboveTwo) {
  EXPECT_THAT(RefusalOf(Spec(v1::KERPLE_KERNEL_POWER, {2.5}, {1})),
              IsInvalid("kerple.p[0]: got 2.5, want at most 2 with kernel "
                        "POWER"));
}

}  // namespace
}  // namespace attnbias::kerple_test
