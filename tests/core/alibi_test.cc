// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/spec/alibi.h"

#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/encoding/bias/alibi_reference.h"
#include "core/encoding/make_encoding.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/mpfr_oracle.h"

namespace attnbias::alibi_test {
namespace {

using Bytes = std::vector<std::byte>;
using Variant = AlibiVariant;

Output Scaled(double scale) {
  Output output;
  output.scale = scale;
  return output;
}

Output Buckets() {
  Output output;
  output.values = Values::kBuckets;
  return output;
}

EncodingPtr Alibi(const AlibiSpec& spec, double scale = 1) {
  return *MakeEncoding(spec, Scaled(scale));
}

// All heads over `span`, [num_heads, span].
Bytes Filled(const AlibiSpec& spec, Range span, DataType type,
             double scale = 1) {
  const auto evaluator =
      Alibi(spec, scale)
          ->prepare({type, scale}, *SupportedKernelSets().front());
  const int64_t row_bytes = span.size() * SizeOf(type);
  Bytes bytes(spec.num_heads * row_bytes);
  evaluator->Fill({{0, spec.num_heads}, span}, bytes.data(), row_bytes);
  return bytes;
}

std::vector<double> Numbers(const Bytes& bytes, DataType type) {
  std::vector<double> numbers;
  const int64_t count = static_cast<int64_t>(bytes.size()) / SizeOf(type);
  for (int64_t i = 0; i < count; ++i) {
    numbers.push_back(ElementAt(type, bytes.data(), i));
  }
  return numbers;
}

// Press et al.: the slopes of a power of two, then every other one of the next.
void SetSlope(int64_t num_heads, int64_t head, double bias_max,
              mpfr_ptr slope) {
  int64_t power = 1;
  while (2 * power <= num_heads) power *= 2;
  const int64_t heads = head < power ? power : 2 * power;
  const int64_t index = head < power ? head + 1 : 2 * (head - power) + 1;
  mpfr_set_d(slope, -bias_max, MPFR_RNDN);
  mpfr_mul_si(slope, slope, index, MPFR_RNDN);
  mpfr_div_si(slope, slope, heads, MPFR_RNDN);
  mpfr_exp2(slope, slope, MPFR_RNDN);
}

void ExpectRounded(const AlibiSpec& spec, Range span, double scale = 1) {
  Number exact;
  for (const DataType type : kFloatTypes) {
    const std::vector<double> actual =
        Numbers(Filled(spec, span, type, scale), type);
    for (int64_t head = 0; head < spec.num_heads; ++head) {
      for (int64_t i = 0; i < span.size(); ++i) {
        const int64_t at = span.begin + i;
        SetSlope(spec.num_heads, head, spec.alibi_bias_max, exact);
        if (!spec.slopes.empty()) {
          mpfr_set_d(exact, spec.slopes[head], MPFR_RNDN);
        }
        mpfr_mul_si(exact, exact,
                    spec.variant == Variant::kSymmetric ? -std::abs(at)
                    : spec.variant == Variant::kCausal
                        ? -std::max<int64_t>(-at, 0)
                        : at,
                    MPFR_RNDN);
        mpfr_mul_d(exact, exact, scale, MPFR_RNDN);
        const bool is_zero = mpfr_zero_p(static_cast<mpfr_ptr>(exact)) != 0;
        const double expected = is_zero ? 0 : RoundedBy(exact, type);
        ASSERT_TRUE(Same(actual[head * span.size() + i], expected))
            << NameOf(type) << " head " << head << " of " << spec.num_heads
            << " at " << at << ": got " << actual[head * span.size() + i]
            << ", want " << expected;
      }
    }
  }
}

TEST(AlibiSlopes, AreRoundedCorrectlyForUpTo128Heads) {
  for (int64_t heads = 1; heads <= 128; ++heads) {
    ExpectRounded({.num_heads = heads, .variant = Variant::kKeyFromStart},
                  {1, 2});
  }
}

TEST(AlibiSlopes, AreThePapers) {
  const AlibiSpec eight = {.num_heads = 8, .variant = Variant::kKeyFromStart};
  EXPECT_THAT(Numbers(Filled(eight, {1, 2}, DataType::kF64), DataType::kF64),
              ::testing::ElementsAre(.5, .25, .125, .0625, .03125, .015625,
                                     .0078125, .00390625));
  const AlibiSpec twelve = {.num_heads = 12, .variant = Variant::kKeyFromStart};
  const std::vector<double> slopes =
      Numbers(Filled(twelve, {1, 2}, DataType::kF64), DataType::kF64);
  const double last[] = {.707106781187, .353553390593, .176776695297,
                         .0883883476483};
  EXPECT_EQ(slopes[0], .5);
  EXPECT_EQ(slopes[7], .00390625);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(slopes[8 + i], last[i], 1e-12);
}

TEST(AlibiRounding, IsCorrectForEveryVariant) {
  for (const Variant variant : {Variant::kSymmetric, Variant::kCausal,
                                Variant::kKeyFromStart, Variant::kKeyFromEnd}) {
    ExpectRounded({.num_heads = 12, .variant = variant}, {-600, 601});
    ExpectRounded({.num_heads = 71, .variant = variant}, {-70000, -69990});
    ExpectRounded({.num_heads = 3, .variant = variant},
                  {(int64_t{1} << 40) - 3, int64_t{1} << 40});
  }
}

// Slopes 2^-k meet the middle between two BF16 or F16 exactly.
TEST(AlibiRounding, DecidesTies) {
  ExpectRounded({.num_heads = 8}, {-5000, 10});
}

TEST(AlibiRounding, IsCorrectWhenScaled) {
  for (const double scale : {0.125, 0.08838834764831845, -3.7, 1e-300, 1e305}) {
    ExpectRounded({.num_heads = 12}, {-300, 30}, scale);
    ExpectRounded({.num_heads = 3,
                   .slopes = {0.1, -1e300, 5e-324},
                   .variant = Variant::kKeyFromStart},
                  {-300, 30}, scale);
  }
}

TEST(AlibiRounding, IsCorrectForExtremeSlopes) {
  ExpectRounded({.num_heads = 3, .alibi_bias_max = 1000.3}, {-40, 40});
  ExpectRounded({.num_heads = 4, .alibi_bias_max = 1024}, {-40, 40});
  ExpectRounded({.num_heads = 2, .alibi_bias_max = 5e-324}, {-40, 40});
  ExpectRounded({.num_heads = 6, .alibi_bias_max = std::nextafter(8, 9)},
                {-40, 40});
}

TEST(AlibiRounding, IsCorrectForGivenSlopes) {
  std::mt19937_64 random(7);
  AlibiSpec spec = {.num_heads = 40, .variant = Variant::kKeyFromEnd};
  for (int i = 0; i < 40; ++i) {
    spec.slopes.push_back(
        std::ldexp(static_cast<double>(random() >> 11), -53 - i));
  }
  spec.slopes[5] = 0;
  spec.slopes[6] = -0.0;
  ExpectRounded(spec, {-500, 1});
  ExpectRounded(spec, {-500, 1}, 1 / std::sqrt(3));
}

TEST(ReferenceAlibi, AgreesWithTheEvaluator) {
  const AlibiSpec spec = {.num_heads = 13};
  for (const DataType type : kFloatTypes) {
    const Bytes filled = Filled(spec, {-50, 50}, type, 0.3);
    for (int64_t head = 0; head < 13; ++head) {
      for (int64_t at = -50; at < 50; ++at) {
        std::byte out[8];
        ReferenceAlibi(spec, head, at, {type, 0.3}, out);
        ASSERT_TRUE(Same(ElementAt(type, out),
                         ElementAt(type, filled.data(), head * 100 + at + 50)));
      }
    }
  }
}

// The three forms agree up to a constant of a row, which softmax removes.
TEST(AlibiForms, DifferByAConstantOfTheRow) {
  constexpr int64_t kLength = 64;
  const DataType type = DataType::kF64;
  const auto numbers = [&](Variant variant, Range span) {
    return Numbers(Filled({.num_heads = 8, .variant = variant}, span, type),
                   type);
  };
  const auto relative = numbers(Variant::kSymmetric, {1 - kLength, kLength});
  const auto causal = numbers(Variant::kCausal, {1 - kLength, kLength});
  const auto start = numbers(Variant::kKeyFromStart, {0, kLength});
  const auto end = numbers(Variant::kKeyFromEnd, {1 - kLength, 1});
  for (int64_t head = 0; head < 8; ++head) {
    const double slope = start[head * kLength + 1];
    for (int64_t i = 0; i < kLength; ++i) {
      for (int64_t j = 0; j < kLength; ++j) {
        const int64_t diagonal = head * (2 * kLength - 1) + j - i + kLength - 1;
        const double row = start[head * kLength + j];
        EXPECT_EQ(row - end[head * kLength + j], slope * (kLength - 1));
        EXPECT_EQ(causal[diagonal], j <= i ? row - slope * i : 0);
        EXPECT_EQ(relative[diagonal], -std::fabs(row - slope * i));
      }
    }
  }
}

// Anchored at the last key, BF16 tells the keys near the query apart.
TEST(AlibiForms, AnchorDecidesWhatBf16CanTellApart) {
  const auto distinct = [](Variant variant, Range span) {
    const auto numbers = Numbers(
        Filled({.num_heads = 8, .variant = variant}, span, DataType::kBF16),
        DataType::kBF16);
    return std::set<double>(numbers.begin(), numbers.begin() + span.size())
        .size();
  };
  EXPECT_EQ(distinct(Variant::kKeyFromEnd, {-255, 1}), 256u);
  EXPECT_EQ(distinct(Variant::kKeyFromStart, {3840, 4096}), 17u);
}

TEST(AlibiEncoding, SaysHowItsNumbersRepeat) {
  const auto make = [](Variant variant) {
    return Alibi({.num_heads = 8, .variant = variant});
  };
  EXPECT_EQ(make(Variant::kSymmetric)->structure, Structure::kToeplitz);
  EXPECT_EQ(make(Variant::kCausal)->structure, Structure::kToeplitz);
  EXPECT_EQ(make(Variant::kKeyFromStart)->structure, Structure::kKeyRow);
  EXPECT_EQ(make(Variant::kKeyFromEnd)->structure, Structure::kKeyRow);
  EXPECT_FALSE(make(Variant::kKeyFromStart)->anchored_at_last_key);
  EXPECT_TRUE(make(Variant::kKeyFromEnd)->anchored_at_last_key);
  EXPECT_EQ(make(Variant::kCausal)->lanes, 8);
}

TEST(AlibiBits, DoNotDependOnHowTheyAreCut) {
  const AlibiSpec spec = {.num_heads = 12};
  const Bytes whole = Filled(spec, {-100, 100}, DataType::kF32);
  const auto evaluator =
      Alibi(spec)->prepare({DataType::kF32}, *SupportedKernelSets().front());
  Bytes pieces(whole.size());
  for (int64_t head = 0; head < 12; head += 3) {
    for (int64_t at = -100; at < 100; at += 40) {
      evaluator->Fill({{head, head + 3}, {at, at + 40}},
                      &pieces[(head * 200 + at + 100) * 4], 800);
    }
  }
  EXPECT_EQ(pieces, whole);
}

struct BadSpec {
  const char* name;
  AlibiSpec spec;
  Output output;
  const char* message;
};

class BadAlibi : public ::testing::TestWithParam<BadSpec> {};

TEST_P(BadAlibi, IsRefusedByName) {
  const auto encoding = MakeEncoding(GetParam().spec, GetParam().output);
  EXPECT_EQ(encoding.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(encoding.status().message()),
              ::testing::StartsWith(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadAlibi,
    ::testing::Values(
        BadSpec{"NoHeads", {}, {}, "alibi.num_heads: not set, want"},
        BadSpec{"TooManyHeads",
                {.num_heads = 65537},
                {},
                "alibi.num_heads: got 65537, want an integer in [1, 65536]"},
        BadSpec{"ZeroBiasMax",
                {.num_heads = 8, .alibi_bias_max = 0},
                {},
                "alibi.alibi_bias_max: got 0, want a number in (0, 1024]"},
        BadSpec{"HugeBiasMax",
                {.num_heads = 8, .alibi_bias_max = 1025},
                {},
                "alibi.alibi_bias_max: got 1025"},
        BadSpec{"BiasMaxNan",
                {.num_heads = 8, .alibi_bias_max = NAN},
                {},
                "alibi.alibi_bias_max: "},
        BadSpec{"TooFewSlopes",
                {.num_heads = 3, .slopes = {1, 2}},
                {},
                "alibi.slopes: got 2 numbers, want 3 (num_heads)"},
        BadSpec{"SlopeNan",
                {.num_heads = 4, .slopes = {1, 2, 3, NAN}},
                {},
                "alibi.slopes[3]: "},
        BadSpec{"SlopeInfinite",
                {.num_heads = 1, .slopes = {INFINITY}},
                {},
                "alibi.slopes[0]: got inf"},
        BadSpec{"BiasMaxUnused",
                {.num_heads = 1, .alibi_bias_max = 4, .slopes = {1}},
                {},
                "alibi.alibi_bias_max: got 4, want none"},
        BadSpec{"Buckets",
                {.num_heads = 8},
                Buckets(),
                "output.values: got BUCKETS, want BIAS: alibi has no buckets"},
        BadSpec{"ScaleInfinite",
                {.num_heads = 8},
                Scaled(INFINITY),
                "output.scale: got inf"}),
    [](const auto& info) { return std::string(info.param.name); });

std::string IdentityOf(const AlibiSpec& spec, double scale = 1) {
  const EncodingPtr encoding = Alibi(spec, scale);
  return encoding->identity;
}

TEST(AlibiIdentity, ChangesWithEveryField) {
  const std::vector<std::string> identities = {
      IdentityOf({.num_heads = 2}),
      IdentityOf({.num_heads = 3}),
      IdentityOf({.num_heads = 2, .alibi_bias_max = 4}),
      IdentityOf({.num_heads = 2, .slopes = {1, 2}}),
      IdentityOf({.num_heads = 2, .slopes = {2, 1}}),
      IdentityOf({.num_heads = 2, .variant = Variant::kCausal}),
      IdentityOf({.num_heads = 2, .variant = Variant::kKeyFromStart}),
      IdentityOf({.num_heads = 2, .variant = Variant::kKeyFromEnd}),
      IdentityOf({.num_heads = 2}, 0.5)};
  for (size_t i = 0; i < identities.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(identities[i], identities[j]);
  }
}

TEST(AlibiIdentity, TakesBothZerosForOne) {
  EXPECT_EQ(IdentityOf({.num_heads = 1, .slopes = {0.0}}),
            IdentityOf({.num_heads = 1, .slopes = {-0.0}}));
}

}  // namespace
}  // namespace attnbias::alibi_test
