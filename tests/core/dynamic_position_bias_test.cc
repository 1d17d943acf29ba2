// SPDX-License-Identifier: Apache-2.0
// Dynamic position bias against the same network one number at a time: fused
// multiplications in the stated order, MPFR's logarithm and exponential.
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/mpfr_oracle.h"
#include "tests/testing/filled.h"

namespace attnbias::dynamic_position_bias_test {
namespace {

using ::testing::ElementsAre;
using Spec = v1::DynamicPositionBias;
using Layer = v1::PositionMlpLayer;

constexpr int64_t kDim = 19;
constexpr int64_t kHeads = 5;

Layer LayerOf(const v1::TableRef& weight) {
  Layer layer;
  *layer.mutable_weight() = weight;
  return layer;
}

Layer LayerOf(const v1::TableRef& weight, const v1::TableRef& bias) {
  Layer layer = LayerOf(weight);
  *layer.mutable_bias() = bias;
  return layer;
}

Spec Of(const std::vector<Layer>& layers) {
  Spec spec;
  spec.mutable_layers()->Add(layers.begin(), layers.end());
  return spec;
}

// Returns a network of x-transformers' shape.
Spec Network(int64_t depth, bool log_distance, bool norm) {
  Spec spec;
  spec.set_num_heads(kHeads);
  spec.set_log_distance(log_distance);
  uint32_t seed = 1;
  for (int64_t i = 0; i < depth; ++i) {
    Layer& layer = *spec.add_layers();
    *layer.mutable_weight() = RandomRef({kDim, i == 0 ? 1 : kDim}, ++seed);
    *layer.mutable_bias() = RandomRef({kDim}, ++seed);
    if (!norm) continue;
    *layer.mutable_norm_weight() = RandomRef({kDim}, ++seed);
    *layer.mutable_norm_bias() = RandomRef({kDim}, ++seed);
  }
  *spec.add_layers() =
      LayerOf(RandomRef({kHeads, kDim}, 98), RandomRef({kHeads}, 99));
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
  if (spec.log_distance()) {
    input = std::copysign(Nearest(mpfr_log1p, std::fabs(input)), input);
  }
  std::vector<double> x = {input};
  for (const Layer& layer : spec.layers()) {
    const Table weight = TableAt(layer.weight());
    const Table bias = TableAt(layer.bias());
    std::vector<double> y;
    for (int64_t o = 0; o < weight.rows(); ++o) {
      double sum = bias.At(o);
      for (size_t i = 0; i < x.size(); ++i) {
        sum = std::fma(weight.At(o, static_cast<int64_t>(i)), x[i], sum);
      }
      y.push_back(sum);
    }
    const auto count = static_cast<double>(y.size());
    if (layer.has_norm_weight()) {
      const Table norm_weight = TableAt(layer.norm_weight());
      const Table norm_bias = TableAt(layer.norm_bias());
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
        y[i] = y[i] / deviation * norm_weight.At(at) + norm_bias.At(at);
      }
    }
    if (&layer != &*spec.layers().rbegin()) {
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
      for (int64_t head = 0; head < spec.num_heads(); ++head) {
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
  const Spec spec =
      Of({LayerOf(Ref(TableOf({2, 1}, {1, 10})), Ref(TableOf({2}, {0.5, 0})))});
  EXPECT_THAT(Filled(spec, {-2, 3}, DataType::kF32).numbers,
              ElementsAre(2.5, 1.5, .5, -.5, -1.5, 20, 10, 0, -10, -20));
}

TEST(DynamicPositionBias, LayersNeedNoBias) {
  Spec with = Network(2, true, false);
  Spec without = with;
  for (int i = 0; i < with.layers_size(); ++i) {
    const int64_t outputs = TableAt(with.layers(i).weight()).rows();
    *with.mutable_layers(i)->mutable_bias() =
        Ref(TableOf({outputs}, std::vector<double>(outputs)));
    without.mutable_layers(i)->clear_bias();
  }
  EXPECT_EQ(Filled(with, {-9, 9}, DataType::kF64).numbers,
            Filled(without, {-9, 9}, DataType::kF64).numbers);
}

TEST(DynamicPositionBias, BitsDependNeitherOnTheCutNorOnTheKernels) {
  const Spec spec = Network(2, true, true);
  const FilledNumbers whole = Filled(spec, {-200, 200}, DataType::kF64);
  for (const KernelSet* kernels : SupportedKernelSets()) {
    EXPECT_EQ(
        Filled(spec, {-200, 200}, DataType::kF64, "", 0, 13, *kernels).numbers,
        whole.numbers);
  }
}

TEST(DynamicPositionBias, SomeHeadsAreALaneOfAll) {
  const Spec spec = Network(1, false, false);
  const FilledNumbers all = Filled(spec, {-4, 70}, DataType::kF32);
  const auto evaluator =
      MakeWith(spec)->prepare({DataType::kF32}, *SupportedKernelSets().front());
  std::vector<float> some(2 * 74);
  evaluator->Fill({{3, 5}, {-4, 70}}, reinterpret_cast<std::byte*>(some.data()),
                  74 * sizeof(float));
  for (int64_t i = 0; i < 2 * 74; ++i) {
    EXPECT_EQ(some[i], all.numbers[3 * 74 + i]);
  }
}

TEST(DynamicPositionBias, RefusesLayersThatDoNotFitEachOther) {
  const auto refusal = [](Layer first, bool alone = false) {
    Spec spec = Of({std::move(first)});
    if (!alone) *spec.add_layers() = LayerOf(RandomRef({2, 3}, 1));
    spec.set_num_heads(2);
    return RefusalOf(spec);
  };
  const std::string path = "dynamic_position_bias.layers";
  EXPECT_THAT(refusal(LayerOf(RandomRef({3, 1}, 1)), true),
              IsInvalid(path + "[0].weight: got shape [3, 1], want [2 heads "
                               "(num_heads), 1 inputs]"));
  EXPECT_THAT(refusal(LayerOf(RandomRef({4, 1}, 1))),
              IsInvalid(path + "[1].weight: got shape [2, 3], want [2 heads "
                               "(num_heads), 4 inputs]"));
  EXPECT_THAT(refusal(LayerOf(RandomRef({3, 1}, 1), RandomRef({4}, 1))),
              IsInvalid(path + "[0].bias: got shape [4], want [3 outputs]"));
  Layer layer = LayerOf(RandomRef({3, 1}, 1));
  *layer.mutable_norm_weight() = RandomRef({3}, 1);
  EXPECT_THAT(refusal(layer), IsInvalid(path + "[0].norm_bias: got no table"));
  layer = LayerOf(RandomRef({2, 1}, 1));
  *layer.mutable_norm_weight() = *layer.mutable_norm_bias() = RandomRef({2}, 1);
  EXPECT_THAT(refusal(layer, true),
              IsInvalid(path + "[0].norm_weight: got a table, want none"));
  EXPECT_THAT(refusal(LayerOf(Ref(TableOf({2, 1}, {1, 1e139}))), true),
              IsInvalid(path + "[0].weight: got numbers that may reach 4.398"));
}

}  // namespace
}  // namespace attnbias::dynamic_position_bias_test
