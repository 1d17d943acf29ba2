// SPDX-License-Identifier: Apache-2.0
// Dynamic position bias against the same network one number at a time: fused
// multiplications in the stated order, MPFR's logarithm and exponential.
#include "core/encoding/spec/dynamic_position_bias.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/mpfr_oracle.h"
#include "tests/testing/engine_harness.h"
#include "tests/testing/filled.h"

namespace attnbias::dynamic_position_bias_test {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;
using Spec = DynamicPositionBiasSpec;

constexpr int64_t kDim = 19;
constexpr int64_t kHeads = 5;

Table TableOf(std::vector<int64_t> shape, const std::vector<double>& values) {
  return *Table::Create(
      DataType::kF64, shape,
      {reinterpret_cast<const char*>(values.data()), values.size() * 8},
      TableLayout::kBucketsHeads);
}

// A network of x-transformers' shape.
Spec Network(int64_t depth, bool log_distance, bool norm) {
  Spec spec{.num_heads = kHeads, .log_distance = log_distance};
  uint32_t seed = 1;
  for (int64_t i = 0; i < depth; ++i) {
    PositionMlpLayer layer{
        .weight = RandomTable({kDim, i == 0 ? 1 : kDim}, ++seed),
        .bias = RandomTable({kDim}, ++seed)};
    if (norm) {
      layer.norm_weight = RandomTable({kDim}, ++seed);
      layer.norm_bias = RandomTable({kDim}, ++seed);
    }
    spec.layers.push_back(layer);
  }
  spec.layers.push_back({.weight = RandomTable({kHeads, kDim}, ++seed),
                         .bias = RandomTable({kHeads}, ++seed)});
  return spec;
}

template <typename Function>
double Nearest(Function function, double x) {
  Number value;
  mpfr_set_d(value, x, MPFR_RNDN);
  function(value, value, MPFR_RNDN);
  return mpfr_get_d(value, MPFR_RNDN);
}

std::vector<double> Oracle(const Spec& spec, int64_t distance) {
  double input = static_cast<double>(distance);
  if (spec.log_distance) {
    input = std::copysign(Nearest(mpfr_log1p, std::fabs(input)), input);
  }
  std::vector<double> x = {input};
  for (const PositionMlpLayer& layer : spec.layers) {
    std::vector<double> y;
    for (int64_t o = 0; o < layer.weight->rows(); ++o) {
      double sum = layer.bias.has_value() ? layer.bias->At(o) : 0;
      for (size_t i = 0; i < x.size(); ++i) {
        sum = std::fma(layer.weight->At(o, static_cast<int64_t>(i)), x[i], sum);
      }
      y.push_back(sum);
    }
    const auto count = static_cast<double>(y.size());
    if (layer.norm_weight.has_value()) {
      double mean = 0;
      for (const double each : y) mean += each;
      mean /= count;
      double square = 0;
      for (double& each : y) {
        each -= mean;
        square += each * each;
      }
      const double deviation = std::sqrt(square / count + 1e-5);
      for (size_t i = 0; i < y.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        y[i] = y[i] / deviation * layer.norm_weight->At(at) +
               layer.norm_bias->At(at);
      }
    }
    if (&layer != &spec.layers.back()) {
      for (double& each : y) each = each / (1 + Nearest(mpfr_exp, -each));
    }
    x = y;
  }
  return x;
}

void ExpectOracle(const Spec& spec, Range span, double scale = 1) {
  Number value;
  for (const DataType type : kFloatTypes) {
    const FilledNumbers got = Filled(spec, span, type, Scaled(scale));
    for (int64_t at = span.begin; at < span.end; ++at) {
      const std::vector<double> want = Oracle(spec, -at);
      for (int64_t head = 0; head < spec.num_heads; ++head) {
        mpfr_set_d(value, want[head], MPFR_RNDN);
        mpfr_mul_d(value, value, scale, MPFR_RNDN);
        ASSERT_TRUE(Same(got.At(head, at), RoundedBy(value, type)))
            << NameOf(type) << " head " << head << " at " << at;
      }
    }
  }
}

TEST(DynamicPositionBias, IsTheNetworkOneNumberAtATime) {
  for (const int64_t depth : {1, 2, 3}) {
    for (const bool log_distance : {false, true}) {
      for (const bool norm : {false, true}) {
        ExpectOracle(Network(depth, log_distance, norm), {-150, 83});
      }
    }
  }
  ExpectOracle(Network(2, true, true),
               {(int64_t{1} << 41) - 3, int64_t{1} << 41});
  ExpectOracle(Network(2, false, false), {-1000000, -999999}, 0.3);
}

// One linear layer alone: minus the relative position, which is i - j.
TEST(DynamicPositionBias, CountsFromKeyToQuery) {
  const Spec spec{.num_heads = 2,
                  .layers = {{.weight = TableOf({2, 1}, {1, 10}),
                              .bias = TableOf({2}, {0.5, 0})}}};
  EXPECT_THAT(Filled(spec, {-2, 3}, DataType::kF32).numbers,
              ElementsAre(2.5, 1.5, .5, -.5, -1.5, 20, 10, 0, -10, -20));
}

TEST(DynamicPositionBias, LayersNeedNoBias) {
  Spec with = Network(2, true, false);
  Spec without = with;
  for (PositionMlpLayer& layer : without.layers) {
    const int64_t outputs = layer.weight->rows();
    with.layers[&layer - without.layers.data()].bias =
        TableOf({outputs}, std::vector<double>(outputs));
    layer.bias.reset();
  }
  EXPECT_EQ(Filled(with, {-9, 9}, DataType::kF64).numbers,
            Filled(without, {-9, 9}, DataType::kF64).numbers);
}

TEST(DynamicPositionBias, BitsDependNeitherOnTheCutNorOnTheKernels) {
  const Spec spec = Network(2, true, true);
  const FilledNumbers whole = Filled(spec, {-200, 200}, DataType::kF64);
  for (const KernelSet* kernels : SupportedKernelSets()) {
    EXPECT_EQ(
        Filled(spec, {-200, 200}, DataType::kF64, {}, 0, 13, *kernels).numbers,
        whole.numbers);
  }
}

TEST(DynamicPositionBias, SomeHeadsAreALaneOfAll) {
  const Spec spec = Network(1, false, false);
  const FilledNumbers all = Filled(spec, {-4, 70}, DataType::kF32);
  const auto evaluator =
      (*MakeEncoding(spec, Output()))
          ->prepare({DataType::kF32}, *SupportedKernelSets().front());
  std::vector<float> some(2 * 74);
  evaluator->Fill({{3, 5}, {-4, 70}}, reinterpret_cast<std::byte*>(some.data()),
                  74 * sizeof(float));
  for (int64_t i = 0; i < 2 * 74; ++i) {
    EXPECT_EQ(some[i], all.numbers[3 * 74 + i]);
  }
}

TEST(DynamicPositionBias, IdentityChangesWithEveryField) {
  const Spec spec = Network(1, false, true);
  Spec logarithmic = spec;
  logarithmic.log_distance = true;
  std::vector<std::string> identities = {
      IdentityOf(spec), IdentityOf(logarithmic), IdentityOf(spec, Scaled(2))};
  for (const auto table :
       {&PositionMlpLayer::weight, &PositionMlpLayer::bias,
        &PositionMlpLayer::norm_weight, &PositionMlpLayer::norm_bias}) {
    Spec other = spec;
    const auto shape = (other.layers[0].*table)->shape();
    other.layers[0].*table = RandomTable({shape.begin(), shape.end()}, 99);
    identities.push_back(IdentityOf(other));
  }
  Spec without = spec;
  without.layers[0].bias.reset();
  identities.push_back(IdentityOf(without));
  Spec moved = spec;
  moved.layers[0].norm_weight.reset();
  moved.layers[0].norm_bias.reset();
  identities.push_back(IdentityOf(moved));
  ExpectAllDifferent(identities);
}

struct BadSpec {
  const char* name;
  Spec spec;
  Output output;
  const char* message;
};

class BadDynamicPositionBias : public ::testing::TestWithParam<BadSpec> {};

TEST_P(BadDynamicPositionBias, IsRefusedByName) {
  EXPECT_THAT(MakeEncoding(GetParam().spec, GetParam().output),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith(GetParam().message)));
}

Spec OneLayer(PositionMlpLayer layer) {
  return {.num_heads = 2, .layers = {std::move(layer)}};
}

Spec Two(PositionMlpLayer first) {
  return {.num_heads = 2,
          .layers = {std::move(first), {.weight = RandomTable({2, 3}, 1)}}};
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadDynamicPositionBias,
    ::testing::Values(
        BadSpec{"NoHeads", {}, {}, "dynamic_position_bias.num_heads: not set"},
        BadSpec{"NoLayers",
                {.num_heads = 1},
                {},
                "dynamic_position_bias.layers: not set, want 1 to 64"},
        BadSpec{"TooManyLayers",
                {.num_heads = 1, .layers = std::vector<PositionMlpLayer>(65)},
                {},
                "dynamic_position_bias.layers: got 65"},
        BadSpec{"NoWeight",
                OneLayer({}),
                {},
                "dynamic_position_bias.layers[0].weight: not set, want a table "
                "of [outputs, 1 inputs]"},
        BadSpec{"WrongHeads",
                OneLayer({.weight = RandomTable({3, 1}, 1)}),
                {},
                "dynamic_position_bias.layers[0].weight: got shape [3, 1], "
                "want [2 heads (num_heads), 1 inputs]"},
        BadSpec{"WrongInputs",
                Two({.weight = RandomTable({4, 1}, 1)}),
                {},
                "dynamic_position_bias.layers[1].weight: got shape [2, 3], "
                "want [2 heads (num_heads), 4 inputs]"},
        BadSpec{"WrongBias",
                Two({.weight = RandomTable({3, 1}, 1),
                     .bias = RandomTable({4}, 1)}),
                {},
                "dynamic_position_bias.layers[0].bias: got shape [4], want [3 "
                "outputs]"},
        BadSpec{"HalfANorm",
                Two({.weight = RandomTable({3, 1}, 1),
                     .norm_weight = RandomTable({3}, 1)}),
                {},
                "dynamic_position_bias.layers[0].norm_bias: got no table"},
        BadSpec{"NormAtTheEnd",
                OneLayer({.weight = RandomTable({2, 1}, 1),
                          .norm_weight = RandomTable({2}, 1),
                          .norm_bias = RandomTable({2}, 1)}),
                {},
                "dynamic_position_bias.layers[0].norm_weight: got a table, "
                "want none"},
        BadSpec{"Overflow",
                OneLayer({.weight = TableOf({2, 1}, {1, 1e139})}),
                {},
                "dynamic_position_bias.layers[0].weight: got numbers that may "
                "reach 4.398"},
        BadSpec{"Buckets", Network(1, false, false),
                WithValues(Values::kBuckets), "output.values: got BUCKETS"},
        BadSpec{"Scale", Network(1, false, false), Scaled(0),
                "output.scale: got 0"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace attnbias::dynamic_position_bias_test
