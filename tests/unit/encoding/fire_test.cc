// SPDX-License-Identifier: Apache-2.0
// Compares FIRE with the same network evaluated one value at a time: MPFR's logarithms, fused
// multiplications in the documented order, and one rounding.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/expect_rounded.h"
#include "tests/unit/support/engine_harness.h"
#include "tests/unit/support/filled.h"

namespace attnbias::fire_test {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kHidden = 32;
constexpr int64_t kHeads = 3;

v1::Fire Network() {
  v1::Fire spec;
  spec.set_threshold(64.5);
  *spec.mutable_hidden_weight() = RandomRef({kHidden, 1}, 1);
  *spec.mutable_hidden_bias() = RandomRef({kHidden}, 2);
  *spec.mutable_output_weight() = RandomRef({kHeads, kHidden}, 3);
  *spec.mutable_output_bias() = RandomRef({kHeads}, 4);
  return Completed(spec);
}

// Returns a network that computes the identity.
v1::Fire Identity() {
  v1::Fire spec;
  *spec.mutable_hidden_weight() = Ref(TableOf({1, 1}, {1}));
  *spec.mutable_output_weight() = spec.hidden_weight();
  return spec;
}

// Returns the double nearest to ln(c x + 1).
double LogOracle(double c, double x) {
  Number value;
  mpfr_set_d(value, c, MPFR_RNDN);
  mpfr_mul_d(value, value, x, MPFR_RNDN);
  mpfr_add_ui(value, value, 1, MPFR_RNDN);
  mpfr_log(value, value, MPFR_RNDN);
  return mpfr_get_d(value, MPFR_RNDN);
}

double Oracle(const v1::Fire& spec, int64_t query, int64_t key, int64_t head) {
  const double distance = std::fabs(static_cast<double>(query - key));
  const double normaliser =
      LogOracle(spec.c(), std::max(static_cast<double>(query), spec.threshold())) + spec.eps();
  const double x = LogOracle(spec.c(), distance) / normaliser;
  const Table hidden_weight = TableAt(spec.hidden_weight());
  const Table output_weight = TableAt(spec.output_weight());
  const auto hidden_bias = TestTables().Get(spec.hidden_bias());
  const auto output_bias = TestTables().Get(spec.output_bias());
  double sum = output_bias.has_value() ? output_bias->At(head) : 0;
  for (int64_t k = 0; k < hidden_weight.rows(); ++k) {
    const double bias = hidden_bias.has_value() ? hidden_bias->At(k) : 0;
    const double hidden = std::fma(hidden_weight.At(k), x, bias);
    sum = std::fma(output_weight.At(head, k), std::max(hidden, 0.0), sum);
  }
  return sum;
}

void ExpectOracle(const v1::Fire& spec, Range keys, int64_t query, double scale = 1) {
  ExpectLanesRounded(
      spec, keys, scale,
      [&](int64_t head, int64_t key, mpfr_ptr value) {
        mpfr_set_d(value, Oracle(spec, query, key, head), MPFR_RNDN);
      },
      query);
}

TEST(Fire, InputsMatchPublishedValues) {
  EXPECT_NEAR(Filled(Identity(), {90, 91}, DataType::kF64, "", 100).At(0, 90), .17525475, 1e-8);
  EXPECT_NEAR(Filled(Identity(), {1013, 1014}, DataType::kF64, "", 1023).At(0, 1013), .14946124,
              1e-8);
}

TEST(Fire, MatchesNetworkPerElement) {
  for (const int64_t query : {0, 3, 64, 65, 500, -20}) {
    ExpectOracle(Network(), {-30, 201}, query);
  }
  // Beyond the distances whose logarithms are cached.
  ExpectOracle(Network(), {-3, 70}, int64_t{1} << 40);
  ExpectOracle(Network(), {0, 70}, 30, -0.3);
}

TEST(Fire, BiasesAreOptional) {
  v1::Fire spec = Network();
  spec.clear_hidden_bias();
  spec.clear_output_bias();
  ExpectOracle(spec, {0, 100}, 80);
}

TEST(Fire, ExtremeParametersAreFinite) {
  for (const double c : {1e-30, 1e30}) {
    for (const double threshold : {1e-30, 0x1p40}) {
      v1::Fire spec = Network();
      spec.set_c(c);
      spec.set_threshold(threshold);
      spec.set_eps(0);
      for (const double number : Filled(spec, {-20, 20}, DataType::kF64, "", 5).numbers) {
        ASSERT_TRUE(std::isfinite(number));
      }
    }
  }
}

TEST(Fire, IsDense) {
  EngineHarness engine;
  const v1::TensorSpec spec = OverPairs(SpecOf(Network()), 90, 130, 40);
  const PlanPtr plan = engine.Plan(spec);
  EXPECT_EQ(plan->form(), v1::FORM_DENSE);
  EXPECT_THAT(plan->parts()[0].shape, ElementsAre(kHeads, 90, 130));
  const std::vector<double> whole = engine.Numbers(spec);
  for (int64_t h = 0; h < kHeads; ++h) {
    for (int64_t i = 0; i < 90; i += 7) {
      for (int64_t j = 0; j < 130; ++j) {
        ASSERT_EQ(whole[(h * 90 + i) * 130 + j],
                  static_cast<float>(Oracle(Network(), i + 40, j, h)));
      }
    }
  }
  engine.ExpectSliceable(spec);
}

TEST(Fire, RejectsToeplitzForm) {
  EXPECT_THAT(
      EngineHarness().MakePlan(OverPairs(WithOutput(Network(), "form: FORM_TOEPLITZ"), 4, 4)),
      IsInvalid("output.form: got TOEPLITZ, want DENSE"));
}

TEST(Fire, RejectsMismatchedTables) {
  const auto refusal = [](const std::string& fields, const auto&... tables) {
    return RefusalOf(Changed(Network(), fields, {tables...}));
  };
  using T = std::pair<std::string, std::vector<int64_t>>;
  EXPECT_THAT(refusal("", T("hidden_weight", {32, 2})),
              IsInvalid("fire.hidden_weight: got shape [32, 2], want [hidden, "
                        "1] = [32, 1]"));
  EXPECT_THAT(refusal("num_heads: 4"), IsInvalid("fire.output_weight: got shape [3, 32], want "
                                                 "[num_heads, hidden] = [4, 32]"));
  EXPECT_THAT(refusal("", T("hidden_bias", {3})),
              IsInvalid("fire.hidden_bias: got shape [3], want [hidden] = [32]"));
  EXPECT_THAT(refusal("", T("output_bias", {32})),
              IsInvalid("fire.output_bias: got shape [32], want [num_heads] "
                        "= [3]"));
  v1::Fire large = Network();
  *large.mutable_output_bias() = Ref(TableOf({3}, {0, 0, 1e200}));
  EXPECT_THAT(RefusalOf(large), IsInvalid("fire.output_weight: got numbers that may reach "
                                          "1e+200"));
}

}  // namespace
}  // namespace attnbias::fire_test
