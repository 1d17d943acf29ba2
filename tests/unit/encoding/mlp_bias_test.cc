// SPDX-License-Identifier: Apache-2.0
// MLPs of relative coordinates: published coordinates, and the same network evaluated one value at
// a time, with fused multiplications in the documented order and MPFR's logarithms, exponential and
// sigmoid.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/expect_rounded.h"
#include "tests/unit/support/engine_harness.h"
#include "tests/unit/support/filled.h"

namespace attnbias::mlp_bias_test {
namespace {

using ::testing::ElementsAre;
using Spec = v1::MlpBias;
using Layer = v1::MlpLayer;

constexpr int64_t kDim = 19;
constexpr int64_t kHeads = 5;
constexpr char kLogDistance[] =
    "activation: ACTIVATION_SILU "
    "coordinates: COORDINATES_SIGNED_LOG";
constexpr char kDistance[] = "activation: ACTIVATION_SILU";
constexpr char kSwinV2[] =
    "activation: ACTIVATION_RELU coordinates: COORDINATES_LOG2_NORMALIZED "
    "output: MLP_OUTPUT_SIGMOID_16 ";

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

Spec Of(const std::vector<Layer>& layers, const std::string& fields) {
  auto spec = Parse<Spec>(fields);
  spec.mutable_layers()->Add(layers.begin(), layers.end());
  return spec;
}

// Returns a network with x-transformers' shape or, given a window, with CrossFormer's.
Spec Network(int64_t depth, const std::string& fields, bool norm) {
  auto spec = Parse<Spec>(fields);
  spec.set_num_heads(kHeads);
  uint32_t seed = 1;
  for (int64_t i = 0; i < depth; ++i) {
    const int64_t inputs = i > 0 ? kDim : std::max(spec.window_size(), 1);
    Layer& layer = *spec.add_layers();
    *layer.mutable_weight() = RandomRef({kDim, inputs}, ++seed);
    *layer.mutable_bias() = RandomRef({kDim}, ++seed);
    if (!norm) continue;
    *layer.mutable_norm_weight() = RandomRef({kDim}, ++seed);
    *layer.mutable_norm_bias() = RandomRef({kDim}, ++seed);
  }
  *spec.add_layers() = LayerOf(RandomRef({kHeads, kDim}, 98), RandomRef({kHeads}, 99));
  return spec;
}

// Returns an MLP whose output is `factor` times the coordinate on one side.
Spec Coordinate(const std::string& fields, bool of_rows, double factor = 1) {
  const double h = of_rows ? 1 : 0;
  const double w = of_rows ? 0 : 1;
  return Of({LayerOf(Ref(TableOf({2, 2}, {h, w, -h, -w}))),
             LayerOf(Ref(TableOf({1, 2}, {factor, -factor})))},
            kSwinV2 + fields);
}

Spec RandomSwinV2() {
  return Of({LayerOf(RandomRef({33, 2}, 1), RandomRef({33}, 2)), LayerOf(RandomRef({7, 33}, 3))},
            std::string(kSwinV2) + "window: [3, 5] pretrained_window: [12, 5]");
}

template <typename Function>
double Nearest(Function function, double x) {
  // The hardest double to round needs about 120 bits.
  Number value(200);
  mpfr_set_d(value, x, MPFR_RNDN);
  function(value, value, MPFR_RNDN);
  return mpfr_get_d(value, MPFR_RNDN);
}

// Returns the double nearest to log2(8 |d| / (side - 1) + 1) / 3, with d's sign.
double NormalisedOracle(int64_t d, int64_t side) {
  Number value;
  mpfr_set_si(value, 8 * std::abs(d), MPFR_RNDN);
  mpfr_div_si(value, value, side - 1, MPFR_RNDN);
  mpfr_add_ui(value, value, 1, MPFR_RNDN);
  mpfr_log2(value, value, MPFR_RNDN);
  mpfr_div_ui(value, value, 3, MPFR_RNDN);
  return std::copysign(mpfr_get_d(value, MPFR_RNDN), d);
}

// Returns the coordinate of a query that is `d` positions after its key.
double CoordinateOracle(const Spec& spec, int axis, int64_t d) {
  const auto distance = static_cast<double>(d);
  switch (spec.coordinates()) {
    case v1::COORDINATES_SIGNED_LOG:
      return std::copysign(Nearest(mpfr_log1p, std::fabs(distance)), distance);
    case v1::COORDINATES_LOG2_NORMALIZED:
      return NormalisedOracle(
          d, spec.pretrained_window_size() > 0 ? spec.pretrained_window(axis) : spec.window(axis));
    default:
      return distance;
  }
}

double ActivationOracle(const Spec& spec, double x) {
  return spec.activation() == v1::ACTIVATION_RELU ? std::max(x, 0.0)
                                                  : x / (1 + Nearest(mpfr_exp, -x));
}

// Returns the network's outputs for a query that is `differences` after its key.
std::vector<double> Oracle(const Spec& spec, const std::vector<int64_t>& differences) {
  std::vector<double> x;
  for (const int64_t d : differences) {
    x.push_back(CoordinateOracle(spec, static_cast<int>(x.size()), d));
  }
  for (const Layer& layer : spec.layers()) {
    const Table weight = TableAt(layer.weight());
    std::vector<double> y;
    for (int64_t o = 0; o < weight.rows(); ++o) {
      double sum = layer.has_bias() ? TableAt(layer.bias()).At(o) : 0;
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
      for (double& each : y) each = ActivationOracle(spec, each);
    }
    x = y;
  }
  return x;
}

// Applies the spec's output function to a network's output `x`.
void SetOutput(const Spec& spec, double x, mpfr_ptr value) {
  mpfr_set_d(value, x, MPFR_RNDN);
  if (spec.output() != v1::MLP_OUTPUT_SIGMOID_16) return;
  mpfr_neg(value, value, MPFR_RNDN);
  mpfr_exp(value, value, MPFR_RNDN);
  mpfr_add_ui(value, value, 1, MPFR_RNDN);
  mpfr_ui_div(value, 16, value, MPFR_RNDN);
}

double Rounded(const Spec& spec, double x, double scale, DataType type) {
  Number value;
  SetOutput(spec, x, value);
  mpfr_mul_d(value, value, scale, MPFR_RNDN);
  return RoundedBy(value, type);
}

void ExpectOracle(const Spec& spec, Range span, double scale = 1) {
  std::vector<double> want;
  ExpectLanesRounded(spec, span, scale, [&](int64_t head, int64_t at, mpfr_ptr value) {
    if (head == 0) want = Oracle(spec, {-at});
    SetOutput(spec, want[head], value);
  });
}

// Compares the block of a whole window, with every kernel set.
void ExpectOracleInWindow(const Spec& spec) {
  int64_t numbers = 1;
  for (const int64_t side : spec.window()) numbers *= 2 * side - 1;
  // The block is indexed by key - query.
  const auto differences = [&](int64_t at) {
    std::vector<int64_t> result(spec.window_size());
    for (int axis = spec.window_size(); axis-- > 0;) {
      const int64_t side = spec.window(axis);
      result[axis] = side - 1 - at % (2 * side - 1);
      at /= 2 * side - 1;
    }
    return result;
  };
  std::vector<std::vector<double>> want;
  for (int64_t at = 0; at < numbers; ++at) {
    want.push_back(Oracle(spec, differences(at)));
  }
  for (const KernelSet* kernels : SupportedKernelSets()) {
    EngineHarness engine({}, *kernels);
    for (const double scale : {1.0, -0.3}) {
      for (const DataType type : kFloatTypes) {
        const std::vector<double> got =
            engine.Numbers(WithOutput(spec, Typed(type) + Scaled(scale)));
        const auto block = static_cast<size_t>(numbers);
        ASSERT_EQ(got.size(), want[0].size() * block);
        for (size_t at = 0; at < got.size(); ++at) {
          const double x = want[at % block][at / block];
          ASSERT_TRUE(Same(got[at], Rounded(spec, x, scale, type))) << kernels->name << " " << at;
        }
      }
    }
  }
}

std::vector<double> Block(const Spec& spec, const std::string& output = "") {
  return EngineHarness().Numbers(WithOutput(spec, output));
}

TEST(MlpBias, MatchesNetworkPerElement) {
  for (const int64_t depth : {1, 2, 3}) {
    for (const char* fields : {kDistance, kLogDistance}) {
      for (const bool norm : {false, true}) {
        ExpectOracle(Network(depth, fields, norm), {-150, 83});
      }
    }
  }
  ExpectOracle(Network(2, kLogDistance, true), {(int64_t{1} << 41) - 3, int64_t{1} << 41});
  ExpectOracle(Network(2, kDistance, false), {-1000000, -999999}, 0.3);
  ExpectOracle(Network(1, "activation: ACTIVATION_RELU", true), {-9, 9});
  ExpectOracle(Network(1, "activation: ACTIVATION_SILU output: MLP_OUTPUT_SIGMOID_16", true),
               {-9, 9}, -0.3);
}

TEST(MlpBias, WindowMatchesOracleOnEveryKernelSet) {
  ExpectOracleInWindow(RandomSwinV2());
  const std::string window = "window: [3, 4] activation: ACTIVATION_RELU ";
  ExpectOracleInWindow(Network(3, window, true));
  ExpectOracleInWindow(Network(1, window + "coordinates: COORDINATES_SIGNED_LOG", false));
  const std::string relu = "activation: ACTIVATION_RELU ";
  ExpectOracleInWindow(
      Network(1, relu + "window: [2, 2, 3] coordinates: COORDINATES_LOG2_NORMALIZED", true));
  ExpectOracleInWindow(Network(1, relu + "window: 5", true));
}

// A single linear layer: minus the relative position, which is i - j.
TEST(MlpBias, CountsQueryMinusKey) {
  const Spec spec =
      Of({LayerOf(Ref(TableOf({2, 1}, {1, 10})), Ref(TableOf({2}, {0.5, 0})))}, kDistance);
  EXPECT_THAT(Filled(spec, {-2, 3}, DataType::kF32).numbers,
              ElementsAre(2.5, 1.5, .5, -.5, -1.5, 20, 10, 0, -10, -20));
}

// A single linear layer: ten times the row difference plus the column difference.
TEST(MlpBias, WindowCountsQueryMinusKey) {
  const Spec spec =
      Of({LayerOf(Ref(TableOf({1, 2}, {10, 1})))}, "window: [2, 2] activation: ACTIVATION_RELU");
  EXPECT_THAT(Block(spec), ElementsAre(11, 10, 9, 1, 0, -1, -9, -10, -11));
}

TEST(MlpBias, LayersNeedNoBias) {
  Spec with = Network(2, kLogDistance, false);
  Spec without = with;
  for (int i = 0; i < with.layers_size(); ++i) {
    const int64_t outputs = TableAt(with.layers(i).weight()).rows();
    *with.mutable_layers(i)->mutable_bias() = Ref(TableOf({outputs}, std::vector<double>(outputs)));
    without.mutable_layers(i)->clear_bias();
  }
  EXPECT_EQ(Filled(with, {-9, 9}, DataType::kF64).numbers,
            Filled(without, {-9, 9}, DataType::kF64).numbers);
}

// Returns the coordinate of a query that is `distance` after its key, recovered from the bias.
double CoordinateAt(const Spec& spec, int64_t distance) {
  // A single row, with columns indexed by key - query.
  const double bias = Block(spec, Typed(DataType::kF64))[spec.window(1) - 1 - distance];
  return std::log(bias / (16 - bias));
}

TEST(MlpBias, NormalizedCoordinatesMatchPublishedValues) {
  const Spec own = Coordinate("window: [1, 8]", false);
  EXPECT_NEAR(CoordinateAt(own, 1), 0.366511891, 1e-9);
  EXPECT_NEAR(CoordinateAt(own, 7), 1.056641667, 1e-9);
  EXPECT_NEAR(CoordinateAt(own, -1), -0.366511891, 1e-9);
  EXPECT_EQ(CoordinateAt(own, 0), 0);
  const Spec pretrained = Coordinate("window: [1, 16] pretrained_window: [1, 8]", false);
  EXPECT_NEAR(CoordinateAt(pretrained, 15), 1.393776588, 1e-9);
}

TEST(MlpBias, WindowOfOneIsZeroNotNan) {
  for (const bool of_rows : {true, false}) {
    EXPECT_THAT(Block(Coordinate("window: [1, 1]", of_rows)), ElementsAre(8));
  }
}

TEST(MlpBias, SidesAreNotSwapped) {
  const std::vector<double> rows = Block(Coordinate("window: [2, 3]", true));
  const std::vector<double> columns = Block(Coordinate("window: [2, 3]", false));
  ASSERT_EQ(rows.size(), 15);
  for (int64_t at = 0; at < 15; ++at) {
    EXPECT_EQ(rows[at] == 8, at / 5 == 1) << at;
    EXPECT_EQ(columns[at] == 8, at % 5 == 2) << at;
  }
  // A query above its key has a negative coordinate, and therefore a bias below 8.
  EXPECT_GT(rows.front(), 8);
  EXPECT_LT(rows.back(), 8);
}

TEST(MlpBias, ClassTokenIsZero) {
  EngineHarness engine;
  Spec spec = RandomSwinV2();
  const std::vector<double> without = engine.Numbers(WithOutput(spec, kDense));
  spec.set_class_token(true);
  const std::vector<double> with = engine.Numbers(WithOutput(spec, kDense));
  ASSERT_EQ(with.size(), 7 * 16 * 16);
  for (int64_t at = 0; at < 7 * 16 * 16; ++at) {
    const int64_t head = at / 256;
    const int64_t i = at / 16 % 16;
    const int64_t j = at % 16;
    const double want = i == 0 || j == 0 ? 0 : without[(head * 15 + i - 1) * 15 + j - 1];
    ASSERT_EQ(with[at], want) << at;
  }
  engine.ExpectSliceable(SpecOf(spec));
}

TEST(MlpBias, SaturatedSigmoidIsItsLimitNotNan) {
  for (const double factor : {3e38, 5000.0, 900.0, 150.0}) {
    for (const DataType type : kFloatTypes) {
      for (const double scale : {1.0, -3.0}) {
        const Spec spec = Coordinate("window: [1, 2]", false, factor);
        const std::vector<double> got = Block(spec, Typed(type) + Scaled(scale));
        ASSERT_EQ(got.size(), 3);
        EXPECT_EQ(got[0], 16 * scale);
        EXPECT_EQ(got[1], 8 * scale);
        const double x = -factor * NormalisedOracle(1, 2);
        const double want = x < -10000 ? std::copysign(0, scale) : Rounded(spec, x, scale, type);
        EXPECT_TRUE(Same(got[2], want)) << factor << " " << got[2];
      }
    }
  }
}

// 16 scale lies halfway between two F32 values, and the scaled sigmoid just below it.
TEST(MlpBias, SaturatedSigmoidTieRoundsDown) {
  const double scale = 1 + 0x1p-24 + 0x1p-23;
  EXPECT_EQ(Block(Coordinate("window: [1, 2]", false, 5000), Scaled(scale))[0], 16 * (1 + 0x1p-23));
}

TEST(MlpBias, RejectsMismatchedLayers) {
  const auto refusal = [](Layer first, bool alone = false) {
    Spec spec = Of({std::move(first)}, kDistance);
    if (!alone) *spec.add_layers() = LayerOf(RandomRef({2, 3}, 1));
    spec.set_num_heads(2);
    return RefusalOf(spec);
  };
  const std::string path = "mlp_bias.layers";
  EXPECT_THAT(refusal(LayerOf(RandomRef({3, 1}, 1)), true),
              IsInvalid(path + "[0].weight: got 3 outputs with 1 inputs each, want 2 with 1"));
  EXPECT_THAT(refusal(LayerOf(RandomRef({4, 1}, 1))),
              IsInvalid(path + "[1].weight: got 2 outputs with 3 inputs each, want 2 with 4"));
  EXPECT_THAT(refusal(LayerOf(RandomRef({3, 1}, 1), RandomRef({4}, 1))),
              IsInvalid(path + "[0].bias: got shape [4], want [out] = [3]"));
  Layer layer = LayerOf(RandomRef({3, 1}, 1));
  *layer.mutable_norm_weight() = RandomRef({3}, 1);
  EXPECT_THAT(refusal(layer), IsInvalid(path + "[0].norm_bias: not set, want a table of [out]"));
  layer = LayerOf(RandomRef({2, 1}, 1));
  *layer.mutable_norm_weight() = *layer.mutable_norm_bias() = RandomRef({2}, 1);
  EXPECT_THAT(refusal(layer, true), IsInvalid(path + "[0].norm_weight: got a table, want none"));
  EXPECT_THAT(refusal(LayerOf(Ref(TableOf({2, 1}, {1, 1e139}))), true),
              IsInvalid(path + "[0].weight: got numbers that may reach 4.398"));
}

TEST(MlpBias, RejectsInvalidWindows) {
  const auto refusal = [](void (*change)(Spec&)) {
    Spec spec = RandomSwinV2();
    change(spec);
    return RefusalOf(spec);
  };
  EXPECT_THAT(refusal([](Spec& spec) {
                spec.clear_window();
                spec.clear_pretrained_window();
              }),
              IsInvalid("mlp_bias.window: not set, want one to three sides "
                        "with coordinates LOG2_NORMALIZED"));
  EXPECT_THAT(refusal([](Spec& spec) {
                for (int i = 0; i < 2; ++i) spec.add_window(3);
              }),
              IsInvalid("mlp_bias.window: got 4 numbers, want at most 3"));
  EXPECT_THAT(refusal([](Spec& spec) { spec.add_pretrained_window(3); }),
              IsInvalid("mlp_bias.pretrained_window: got 3 numbers, want 2 (window)"));
  EXPECT_THAT(refusal([](Spec& spec) { spec.set_coordinates(v1::COORDINATES_LINEAR); }),
              IsInvalid("mlp_bias.pretrained_window: got 2 numbers, want none "
                        "with coordinates LINEAR"));
  EXPECT_THAT(refusal([](Spec& spec) { spec.set_pretrained_window(0, 1); }),
              IsInvalid("mlp_bias.pretrained_window[0]: got 1, want at least 2 "
                        "for a side of 3"));
  EXPECT_THAT(
      refusal([](Spec& spec) {
        *spec.mutable_layers(0)->mutable_weight() = RandomRef({33, 3}, 1);
      }),
      IsInvalid("mlp_bias.layers[0].weight: got 33 outputs with 3 inputs each, want 33 with 2"));
}

TEST(MlpBias, EqualPretrainedWindowKeepsIdentity) {
  Spec spec = RandomSwinV2();
  spec.clear_pretrained_window();
  const std::string identity = IdentityOf(spec);
  *spec.mutable_pretrained_window() = spec.window();
  EXPECT_EQ(IdentityOf(spec), identity);
  spec.set_pretrained_window(0, spec.window(0) + 1);
  EXPECT_NE(IdentityOf(spec), identity);
}

}  // namespace
}  // namespace attnbias::mlp_bias_test
