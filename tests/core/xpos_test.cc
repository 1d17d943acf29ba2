// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/mpfr_oracle.h"
#include "tests/testing/filled.h"

namespace attnbias::xpos_test {
namespace {

constexpr int64_t kCos = 0;
constexpr int64_t kSin = 1;
constexpr int64_t kScale = 2;

// Has its defaults filled in.
v1::Xpos Xpos(const std::string& fields) {
  return Completed(Parse<v1::Xpos>(fields));
}

// One lane's rows as doubles.
std::vector<double> Rows(const v1::Xpos& spec, DataType type, Range rows,
                         int64_t lane, double scale = 1) {
  const EncodingPtr encoding = MakeWith(spec, Scaled(scale));
  const int64_t count = rows.size() * encoding->width;
  std::vector<std::byte> bytes(count * SizeOf(type));
  encoding->prepare({type, scale}, *SupportedKernelSets().front())
      ->Fill({{lane, lane + 1}, rows}, bytes.data(), 0);
  std::vector<double> numbers;
  for (int64_t i = 0; i < count; ++i) {
    numbers.push_back(ElementAt(type, bytes.data(), i));
  }
  return numbers;
}

// scale x ((2 pair / dim + gamma) / (1 + gamma))^((position - center) / base).
double ExpectedScale(const v1::Xpos& spec, int64_t position, int64_t pair,
                     DataType type, double scale) {
  Number value, other;
  mpfr_set_si(value, 2 * pair, MPFR_RNDN);
  mpfr_div_si(value, value, spec.dim(), MPFR_RNDN);
  mpfr_add_d(value, value, spec.gamma(), MPFR_RNDN);
  mpfr_set_d(other, spec.gamma(), MPFR_RNDN);
  mpfr_add_ui(other, other, 1, MPFR_RNDN);
  mpfr_div(value, value, other, MPFR_RNDN);
  mpfr_log(value, value, MPFR_RNDN);
  mpfr_mul_si(value, value, position - spec.sequence_length() / 2, MPFR_RNDN);
  mpfr_div_d(value, value, spec.scale_base(), MPFR_RNDN);
  mpfr_exp(value, value, MPFR_RNDN);
  mpfr_mul_d(value, value, scale, MPFR_RNDN);
  return RoundedBy(value, type);
}

void ExpectRounded(const v1::Xpos& spec, Range rows, double scale = 1) {
  for (const DataType type : kFloatTypes) {
    const std::vector<double> numbers = Rows(spec, type, rows, kScale, scale);
    for (int64_t row = 0; row < rows.size(); ++row) {
      for (int64_t pair = 0; pair < spec.dim() / 2; ++pair) {
        const double wanted =
            ExpectedScale(spec, rows.begin + row, pair, type, scale);
        ASSERT_EQ(numbers[row * spec.dim() + pair], wanted)
            << NameOf(type) << " position " << rows.begin + row << " pair "
            << pair;
        ASSERT_EQ(numbers[row * spec.dim() + spec.dim() / 2 + pair], wanted);
      }
    }
  }
}

// torchscale at length 8.
TEST(XposRows, AreThePublishedOnes) {
  const v1::Xpos spec = Xpos("dim: 64 sequence_length: 8");
  const std::vector<double> scale = Rows(spec, DataType::kF64, {0, 8}, kScale);
  EXPECT_NEAR(scale[0], 1.009835262, 1e-9);
  EXPECT_NEAR(scale[7 * 64 + 31], 0.9998677373, 1e-10);
  EXPECT_EQ(scale[4 * 64 + 5], 1);
  const std::vector<double> cos = Rows(spec, DataType::kF64, {0, 8}, kCos);
  const std::vector<double> sin = Rows(spec, DataType::kF64, {0, 8}, kSin);
  EXPECT_NEAR(cos[3 * 64], std::cos(3.0), 1e-15);
  EXPECT_NEAR(sin[3 * 64 + 32], std::sin(3.0), 1e-15);
}

TEST(XposRounding, IsCorrect) {
  ExpectRounded(Xpos("dim: 64 sequence_length: 300"), {-200, 500});
  ExpectRounded(Xpos("dim: 6 sequence_length: 1"), {-3000, -2500}, -0.3);
  ExpectRounded(Xpos("dim: 6 sequence_length: 7"), {60000, 60300}, 0x1p-800);
  ExpectRounded(
      Xpos("dim: 10 scale_base: 1e9 gamma: 3 sequence_length: 1048576"),
      {-(int64_t{1} << 40), -(int64_t{1} << 40) + 200});
  ExpectRounded(Xpos("dim: 4 scale_base: 1 gamma: 1e-3 sequence_length: 10"),
                {-40, 50});
}

// Decays that are dyadic, at a scale that makes them ties.
TEST(XposRounding, EndsOnTies) {
  const v1::Xpos spec =
      Xpos("dim: 2 scale_base: 3 gamma: 1 sequence_length: 1");
  const double tie = 1 + 0x1p-24;
  const std::vector<double> rows =
      Rows(spec, DataType::kF32, {0, 7}, kScale, tie);
  EXPECT_EQ(rows[0], 1);
  EXPECT_EQ(rows[2 * 3], 0.5);
  EXPECT_EQ(rows[2 * 6], 0.25);
}

TEST(XposRows, DoNotDependOnHowARangeIsCut) {
  const v1::Xpos spec = Xpos("dim: 20 sequence_length: 500");
  for (const DataType type : kFloatTypes) {
    const std::vector<double> whole = Rows(spec, type, {0, 700}, kScale);
    std::vector<double> pieces;
    for (int64_t at = 0; at < 700; at += 70) {
      const std::vector<double> piece = Rows(spec, type, {at, at + 70}, kScale);
      pieces.insert(pieces.end(), piece.begin(), piece.end());
    }
    EXPECT_EQ(pieces, whole);
  }
}

TEST(XposRows, HaveALayout) {
  v1::Xpos spec = Xpos("dim: 6 sequence_length: 500");
  spec.set_layout(v1::ROTARY_LAYOUT_COMPACT);
  const std::vector<double> once = Rows(spec, DataType::kF32, {9, 10}, kScale);
  ASSERT_EQ(once.size(), 3);
  spec.set_layout(v1::ROTARY_LAYOUT_INTERLEAVED);
  EXPECT_THAT(Rows(spec, DataType::kF32, {9, 10}, kScale),
              testing::ElementsAre(once[0], once[0], once[1], once[1], once[2],
                                   once[2]));
}

TEST(Xpos, ReachesAsFarAsItsDecays) {
  const Range domain =
      MakeWith(Xpos("dim: 4 scale_base: 1 sequence_length: 10"))->domain;
  // log2(1.4 / 0.4) = 1.807...: 512 / 1.807 = 283.
  EXPECT_EQ(domain.begin, 5 - 283);
  EXPECT_EQ(domain.end, 5 + 284);
  EXPECT_EQ(
      MakeWith(Xpos("dim: 4 scale_base: 1e9 gamma: 1e6 sequence_length: 10"))
          ->domain.size(),
      (int64_t{1} << 41) + 1);
}

TEST(XposIdentity, IsThatOfTheCenter) {
  EXPECT_EQ(IdentityOf(Xpos("dim: 4 sequence_length: 9")),
            IdentityOf(Xpos("dim: 4 sequence_length: 8")));
  EXPECT_NE(IdentityOf(Xpos("dim: 4 sequence_length: 10")),
            IdentityOf(Xpos("dim: 4 sequence_length: 8")));
}

}  // namespace
}  // namespace attnbias::xpos_test
