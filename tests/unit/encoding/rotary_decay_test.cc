// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/expect_rounded.h"

namespace attnbias::rotary_decay_test {
namespace {

constexpr int64_t kCos = 0;
constexpr int64_t kSin = 1;
constexpr int64_t kScale = 2;

// Returns the spec with its defaults filled in.
v1::Rotary Decaying(int head_dim, const std::string& decay) {
  return Completed(Parse<v1::Rotary>(absl::StrCat("head_dim: ", head_dim, " decay {", decay, "}")));
}

// Returns one lane's rows as doubles.
std::vector<double> Rows(const v1::Rotary& spec, DataType type, Range rows, int64_t lane,
                         double scale = 1) {
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

// Sets ((2 pair / head_dim + gamma) / (1 + gamma))^((position - center) / base).
void SetScale(const v1::Rotary& spec, int64_t position, int64_t pair, mpfr_ptr value) {
  const v1::Decay& decay = spec.decay();
  Number other;
  mpfr_set_si(value, 2 * pair, MPFR_RNDN);
  mpfr_div_si(value, value, spec.head_dim(), MPFR_RNDN);
  mpfr_add_d(value, value, decay.gamma(), MPFR_RNDN);
  mpfr_set_d(other, decay.gamma(), MPFR_RNDN);
  mpfr_add_ui(other, other, 1, MPFR_RNDN);
  mpfr_div(value, value, other, MPFR_RNDN);
  mpfr_log(value, value, MPFR_RNDN);
  mpfr_mul_si(value, value, position - decay.center(), MPFR_RNDN);
  mpfr_div_d(value, value, decay.scale_base(), MPFR_RNDN);
  mpfr_exp(value, value, MPFR_RNDN);
}

void ExpectRounded(const v1::Rotary& spec, Range rows, double scale = 1) {
  const EncodingPtr encoding = MakeWith(spec, Scaled(scale));
  ExpectRowsRounded(
      rows.size(), spec.head_dim(), scale,
      [&](DataType type, std::byte* out) {
        encoding->prepare({type, scale}, *SupportedKernelSets().front())
            ->Fill({{kScale, kScale + 1}, rows}, out, 0);
      },
      [&](int64_t row, int64_t column, mpfr_ptr value) {
        SetScale(spec, rows.begin + row, column % (spec.head_dim() / 2), value);
      });
}

// torchscale's values at length 8.
TEST(DecayRows, MatchPublishedValues) {
  const v1::Rotary spec = Decaying(64, "center: 4");
  const std::vector<double> scale = Rows(spec, DataType::kF64, {0, 8}, kScale);
  EXPECT_NEAR(scale[0], 1.009835262, 1e-9);
  EXPECT_NEAR(scale[7 * 64 + 31], 0.9998677373, 1e-10);
  EXPECT_EQ(scale[4 * 64 + 5], 1);
}

TEST(DecayRows, DoNotChangeCosinesAndSines) {
  const v1::Rotary spec = Decaying(64, "center: 4");
  v1::Rotary plain = spec;
  plain.clear_decay();
  for (const int64_t lane : {kCos, kSin}) {
    EXPECT_EQ(Rows(spec, DataType::kF64, {0, 8}, lane), Rows(plain, DataType::kF64, {0, 8}, lane));
  }
}

// The decay does not depend on an attention factor or on a pair that does not rotate.
TEST(DecayRows, DependOnlyOnThePair) {
  v1::Rotary spec = Decaying(8, "");
  const std::vector<double> plain = Rows(spec, DataType::kF64, {-9, 9}, kScale);
  spec.mutable_yarn()->set_factor(4);
  spec.mutable_yarn()->set_original_max_position_embeddings(64);
  EXPECT_EQ(Rows(Completed(spec), DataType::kF64, {-9, 9}, kScale), plain);
  spec = Decaying(8, "");
  for (const double frequency : {1, 0, 0, 2}) {
    spec.add_inverse_frequencies(frequency);
  }
  spec.clear_rope_theta();
  EXPECT_EQ(Rows(spec, DataType::kF64, {-9, 9}, kScale), plain);
}

TEST(DecayRows, CountOnlyRotatedPairs) {
  v1::Rotary spec = Decaying(16, "");
  spec.set_partial_rotary_factor(0.5);
  EXPECT_EQ(Rows(spec, DataType::kF64, {-9, 9}, kScale),
            Rows(Decaying(8, ""), DataType::kF64, {-9, 9}, kScale));
}

TEST(DecayRounding, IsCorrect) {
  ExpectRounded(Decaying(64, "center: 150"), {-200, 500});
  ExpectRounded(Decaying(6, ""), {-3000, -2500}, -0.3);
  ExpectRounded(Decaying(6, "center: 3"), {60000, 60300}, 0x1p-800);
  ExpectRounded(Decaying(10, "scale_base: 1e9 gamma: 3 center: 524288"),
                {-(int64_t{1} << 40), -(int64_t{1} << 40) + 200});
  ExpectRounded(Decaying(6, "scale_base: 1e9 gamma: 1e6 center: -1099511627776"),
                {(int64_t{1} << 40) - 70, int64_t{1} << 40});
  ExpectRounded(Decaying(4, "scale_base: 1 gamma: 1e-3 center: 5"), {-40, 50});
}

// Dyadic decays, with a scale that makes them ties.
TEST(DecayRounding, DecidesTies) {
  const v1::Rotary spec = Decaying(2, "scale_base: 3 gamma: 1");
  const double tie = 1 + 0x1p-24;
  const std::vector<double> rows = Rows(spec, DataType::kF32, {0, 7}, kScale, tie);
  EXPECT_EQ(rows[0], 1);
  EXPECT_EQ(rows[2 * 3], 0.5);
  EXPECT_EQ(rows[2 * 6], 0.25);
}

TEST(DecayRows, FollowTheLayout) {
  v1::Rotary spec = Decaying(6, "center: 250");
  spec.set_layout(v1::ROTARY_LAYOUT_COMPACT);
  const std::vector<double> once = Rows(spec, DataType::kF32, {9, 10}, kScale);
  ASSERT_EQ(once.size(), 3);
  spec.set_layout(v1::ROTARY_LAYOUT_INTERLEAVED);
  EXPECT_THAT(Rows(spec, DataType::kF32, {9, 10}, kScale),
              testing::ElementsAre(once[0], once[0], once[1], once[1], once[2], once[2]));
}

TEST(Decay, DomainIsLimitedByDoubleDoubleRange) {
  const Range domain = MakeWith(Decaying(4, "scale_base: 1 center: 5"))->domain;
  // log2(1.4 / 0.4) = 1.807...: 512 / 1.807 = 283.
  EXPECT_EQ(domain.begin, 5 - 283);
  EXPECT_EQ(domain.end, 5 + 284);
  EXPECT_EQ(MakeWith(Decaying(4, "scale_base: 1e9 gamma: 1e6"))->domain.size(),
            (int64_t{1} << 41) + 1);
}

TEST(DecayIdentity, DistinguishesDefaultDecayFromNone) {
  v1::Rotary none = Decaying(4, "");
  none.clear_decay();
  EXPECT_NE(IdentityOf(Decaying(4, "")), IdentityOf(none));
  EXPECT_EQ(IdentityOf(Decaying(4, "center: 0 gamma: 0.4")), IdentityOf(Decaying(4, "")));
  EXPECT_NE(IdentityOf(Decaying(4, "center: 5")), IdentityOf(Decaying(4, "")));
}

}  // namespace
}  // namespace attnbias::rotary_decay_test
