// SPDX-License-Identifier: Apache-2.0
// FIRE against the same network one number at a time: MPFR's logarithms, fused
// multiplications in the stated order, one rounding.
#include "core/encoding/spec/fire.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/mpfr_oracle.h"
#include "tests/testing/engine_harness.h"
#include "tests/testing/filled.h"

namespace attnbias::fire_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kHidden = 32;
constexpr int64_t kHeads = 3;

Table TableOf(std::vector<int64_t> shape, const std::vector<double>& values) {
  return *Table::Create(
      DataType::kF64, shape,
      {reinterpret_cast<const char*>(values.data()), values.size() * 8},
      TableLayout::kBucketsHeads);
}

FireSpec Network() {
  return {.num_heads = kHeads,
          .threshold = 64.5,
          .hidden_weight = RandomTable({kHidden, 1}, 1),
          .hidden_bias = RandomTable({kHidden}, 2),
          .output_weight = RandomTable({kHeads, kHidden}, 3),
          .output_bias = RandomTable({kHeads}, 4)};
}

// The network's input itself.
FireSpec Identity() {
  return {.num_heads = 1,
          .hidden_weight = TableOf({1, 1}, {1}),
          .output_weight = TableOf({1, 1}, {1})};
}

// ln(c x + 1), the nearest double.
double LogOracle(double c, double x) {
  Number value;
  mpfr_set_d(value, c, MPFR_RNDN);
  mpfr_mul_d(value, value, x, MPFR_RNDN);
  mpfr_add_ui(value, value, 1, MPFR_RNDN);
  mpfr_log(value, value, MPFR_RNDN);
  return mpfr_get_d(value, MPFR_RNDN);
}

double Oracle(const FireSpec& spec, int64_t query, int64_t key, int64_t head) {
  const double distance = std::fabs(static_cast<double>(query - key));
  const double normaliser =
      LogOracle(spec.c, std::max(static_cast<double>(query), spec.threshold)) +
      spec.eps;
  const double x = LogOracle(spec.c, distance) / normaliser;
  double sum = spec.output_bias.has_value() ? spec.output_bias->At(head) : 0;
  for (int64_t k = 0; k < spec.hidden_weight->rows(); ++k) {
    const double bias =
        spec.hidden_bias.has_value() ? spec.hidden_bias->At(k) : 0;
    const double hidden = std::fma(spec.hidden_weight->At(k), x, bias);
    sum = std::fma(spec.output_weight->At(head, k), std::max(hidden, 0.0), sum);
  }
  return sum;
}

void ExpectOracle(const FireSpec& spec, Range keys, int64_t query,
                  double scale = 1) {
  Number value;
  for (const DataType type : kFloatTypes) {
    const FilledNumbers got = Filled(spec, keys, type, Scaled(scale), query);
    for (int64_t key = keys.begin; key < keys.end; ++key) {
      for (int64_t head = 0; head < spec.num_heads; ++head) {
        mpfr_set_d(value, Oracle(spec, query, key, head), MPFR_RNDN);
        mpfr_mul_d(value, value, scale, MPFR_RNDN);
        ASSERT_TRUE(Same(got.At(head, key), RoundedBy(value, type)))
            << NameOf(type) << " query " << query << " key " << key;
      }
    }
  }
}

TEST(Fire, InputsAreThePublishedOnes) {
  EXPECT_NEAR(Filled(Identity(), {90, 91}, DataType::kF64, {}, 100).At(0, 90),
              .17525475, 1e-8);
  EXPECT_NEAR(
      Filled(Identity(), {1013, 1014}, DataType::kF64, {}, 1023).At(0, 1013),
      .14946124, 1e-8);
}

TEST(Fire, IsTheNetworkOneNumberAtATime) {
  for (const int64_t query : {0, 3, 64, 65, 500, -20}) {
    ExpectOracle(Network(), {-30, 201}, query);
  }
  // Farther than logarithms are kept.
  ExpectOracle(Network(), {-3, 70}, int64_t{1} << 40);
  ExpectOracle(Network(), {0, 70}, 30, -0.3);
}

TEST(Fire, BiasesAreOptional) {
  FireSpec spec = Network();
  spec.hidden_bias.reset();
  spec.output_bias.reset();
  ExpectOracle(spec, {0, 100}, 80);
}

TEST(Fire, ExtremeParametersGiveNoNan) {
  for (const double c : {1e-30, 1e30}) {
    for (const double threshold : {1e-30, 0x1p40}) {
      FireSpec spec = Network();
      spec.c = c;
      spec.threshold = threshold;
      spec.eps = 0;
      for (const double number :
           Filled(spec, {-20, 20}, DataType::kF64, {}, 5).numbers) {
        ASSERT_TRUE(std::isfinite(number));
      }
    }
  }
}

TEST(Fire, IsDenseAndItsWindowsAreSlices) {
  EngineHarness engine;
  const TensorSpec spec{Network(), PairOf(90, 130, 40), {}};
  const PlanPtr plan = engine.Plan(spec);
  EXPECT_EQ(plan->form(), Form::kDense);
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

  TensorSpec window = spec;
  auto& pair = std::get<PairExtent>(window.extent);
  pair.queries = {80, 83};
  pair.keys = {5, 100};
  pair.heads = {1, 3};
  std::vector<double> slice;
  for (int64_t h = 1; h < 3; ++h) {
    for (int64_t i = 80; i < 83; ++i) {
      for (int64_t j = 5; j < 100; ++j) {
        slice.push_back(whole[(h * 90 + i) * 130 + j]);
      }
    }
  }
  EXPECT_EQ(engine.Numbers(window), slice);
}

TEST(Fire, ListsAndMasks) {
  EngineHarness engine;
  PairExtent pair;
  pair.query_positions = {7, 100, -3};
  pair.key_positions = {9, 2, 3, 101};
  TensorSpec spec{Network(), pair, {}};
  spec.output.mask = Mask{.causal = true};
  const std::vector<double> got = engine.Numbers(spec);
  for (int64_t h = 0; h < kHeads; ++h) {
    for (size_t i = 0; i < 3; ++i) {
      for (size_t j = 0; j < 4; ++j) {
        const int64_t query = (*pair.query_positions)[i];
        const int64_t key = (*pair.key_positions)[j];
        EXPECT_EQ(got[(h * 3 + i) * 4 + j],
                  key > query
                      ? -INFINITY
                      : static_cast<float>(Oracle(Network(), query, key, h)));
      }
    }
  }
}

TEST(Fire, HasNoDiagonals) {
  TensorSpec spec{Network(), PairOf(4, 4, 0), {}};
  spec.output.form = Form::kToeplitz;
  EXPECT_THAT(EngineHarness().MakePlan(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("output.form: got TOEPLITZ, want DENSE")));
}

TEST(Fire, BitsDependNeitherOnTheCutNorOnTheKernels) {
  const FilledNumbers whole =
      Filled(Network(), {0, 300}, DataType::kF64, {}, 150);
  for (const KernelSet* kernels : SupportedKernelSets()) {
    EXPECT_EQ(Filled(Network(), {0, 300}, DataType::kF64, {}, 150, 29, *kernels)
                  .numbers,
              whole.numbers);
  }
}

TEST(Fire, IdentityChangesWithEveryField) {
  std::vector<std::string> identities = {IdentityOf(Network()),
                                         IdentityOf(Network(), Scaled(2))};
  for (const auto field :
       {&FireSpec::c, &FireSpec::threshold, &FireSpec::eps}) {
    FireSpec other = Network();
    other.*field = 0.25;
    identities.push_back(IdentityOf(other));
  }
  for (const auto table : {&FireSpec::hidden_weight, &FireSpec::hidden_bias,
                           &FireSpec::output_weight, &FireSpec::output_bias}) {
    FireSpec other = Network();
    const auto shape = (other.*table)->shape();
    other.*table = RandomTable({shape.begin(), shape.end()}, 99);
    identities.push_back(IdentityOf(other));
  }
  FireSpec without = Network();
  without.hidden_bias.reset();
  identities.push_back(IdentityOf(without));
  ExpectAllDifferent(identities);
}

struct BadSpec {
  const char* name;
  void (*spoil)(FireSpec& spec, Output& output);
  const char* message;
};

class BadFire : public ::testing::TestWithParam<BadSpec> {};

TEST_P(BadFire, IsRefusedByName) {
  FireSpec spec = Network();
  Output output;
  GetParam().spoil(spec, output);
  EXPECT_THAT(MakeEncoding(spec, output),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadFire,
    ::testing::Values(
        BadSpec{"NoHeads",
                [](FireSpec& s, Output&) {
                  s.num_heads = 0;
                  s.output_weight.reset();
                },
                "fire.num_heads: not set"},
        BadSpec{"ZeroC", [](FireSpec& s, Output&) { s.c = 0; },
                "fire.c: got 0, want a number in [1e-30, 1e+30]"},
        BadSpec{"NanC", [](FireSpec& s, Output&) { s.c = NAN; },
                "fire.c: got nan"},
        BadSpec{"NegativeThreshold",
                [](FireSpec& s, Output&) { s.threshold = -512; },
                "fire.threshold: got -512"},
        BadSpec{"NegativeEps", [](FireSpec& s, Output&) { s.eps = -1; },
                "fire.eps: got -1, want a number in [0, 1]"},
        BadSpec{"NoHiddenWeight",
                [](FireSpec& s, Output&) { s.hidden_weight.reset(); },
                "fire.hidden_weight: not set, want"},
        BadSpec{"NoOutputWeight",
                [](FireSpec& s, Output&) { s.output_weight.reset(); },
                "fire.output_weight: not set, want a table of [3 heads "
                "(num_heads), "
                "32 hidden]"},
        BadSpec{"TwoInputs",
                [](FireSpec& s, Output&) {
                  s.hidden_weight = RandomTable({32, 2}, 1);
                },
                "fire.hidden_weight: got shape [32, 2], want [32 hidden, 1 "
                "input]"},
        BadSpec{"WrongHeads", [](FireSpec& s, Output&) { s.num_heads = 4; },
                "fire.output_weight: got shape [3, 32], want [4 heads "
                "(num_heads), 32"},
        BadSpec{
            "WrongHiddenBias",
            [](FireSpec& s, Output&) { s.hidden_bias = RandomTable({3}, 1); },
            "fire.hidden_bias: got shape [3], want [32 hidden]"},
        BadSpec{
            "WrongOutputBias",
            [](FireSpec& s, Output&) { s.output_bias = RandomTable({32}, 1); },
            "fire.output_bias: got shape [32], want [3 heads (num_heads)]"},
        BadSpec{"Overflow",
                [](FireSpec& s, Output&) {
                  s.output_bias = TableOf({3}, {0, 0, 1e200});
                },
                "fire.output_weight: got numbers that may reach 1e+200"},
        BadSpec{"Buckets",
                [](FireSpec&, Output& o) { o.values = Values::kBuckets; },
                "output.values: got BUCKETS"},
        BadSpec{"Scale", [](FireSpec&, Output& o) { o.scale = 0; },
                "output.scale: got 0"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace attnbias::fire_test
