// SPDX-License-Identifier: Apache-2.0
// Swin-V2's continuous position bias: published coordinates, and the MLP
// against fused multiplications in the stated order and MPFR's sigmoid.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/mpfr_oracle.h"
#include "tests/testing/engine_harness.h"
#include "tests/testing/filled.h"

namespace attnbias::swin_v2_test {
namespace {

// Returns an MLP whose output is `factor` times the coordinate on one side.
v1::SwinV2 Coordinate(int height, int width, bool of_rows, double factor = 1) {
  const double h = of_rows ? 1 : 0;
  const double w = of_rows ? 0 : 1;
  v1::SwinV2 spec;
  spec.set_window_height(height);
  spec.set_window_width(width);
  *spec.mutable_hidden_weight() = Ref(TableOf({2, 2}, {h, w, -h, -w}));
  *spec.mutable_hidden_bias() = Ref(TableOf({2}, {0, 0}));
  *spec.mutable_output_weight() = Ref(TableOf({1, 2}, {factor, -factor}));
  return spec;
}

std::vector<double> Block(const v1::SwinV2& spec,
                          const std::string& output = "") {
  return EngineHarness().Numbers(WithOutput(spec, output));
}

// The coordinate of a query `distance` after its key, from the bias.
double CoordinateAt(const v1::SwinV2& spec, int64_t distance) {
  // One row: columns count key - query.
  const double bias =
      Block(spec, Typed(DataType::kF64))[spec.window_width() - 1 - distance];
  return std::log(bias / (16 - bias));
}

TEST(SwinV2, CoordinatesAreThePublishedOnes) {
  const v1::SwinV2 own = Coordinate(1, 8, false);
  EXPECT_NEAR(CoordinateAt(own, 1), 0.366511891, 1e-9);
  EXPECT_NEAR(CoordinateAt(own, 7), 1.056641667, 1e-9);
  EXPECT_NEAR(CoordinateAt(own, -1), -0.366511891, 1e-9);
  EXPECT_EQ(CoordinateAt(own, 0), 0);
  v1::SwinV2 pretrained = Coordinate(1, 16, false);
  pretrained.set_pretrained_window_width(8);
  EXPECT_NEAR(CoordinateAt(pretrained, 15), 1.393776588, 1e-9);
}

TEST(SwinV2, WindowOfOneIsZeroNotNan) {
  for (const bool of_rows : {true, false}) {
    EXPECT_THAT(Block(Coordinate(1, 1, of_rows)), testing::ElementsAre(8));
  }
}

TEST(SwinV2, SidesAreNotSwapped) {
  const std::vector<double> rows = Block(Coordinate(2, 3, true));
  const std::vector<double> columns = Block(Coordinate(2, 3, false));
  ASSERT_EQ(rows.size(), 15);
  for (int64_t at = 0; at < 15; ++at) {
    EXPECT_EQ(rows[at] == 8, at / 5 == 1) << at;
    EXPECT_EQ(columns[at] == 8, at % 5 == 2) << at;
  }
  // A query above its key has a negative coordinate, and less than 8.
  EXPECT_GT(rows.front(), 8);
  EXPECT_LT(rows.back(), 8);
}

v1::SwinV2 RandomSpec() {
  auto spec = Parse<v1::SwinV2>(
      "window_height: 3 window_width: 5 pretrained_window_height: 12");
  *spec.mutable_hidden_weight() = RandomRef({33, 2}, 1);
  *spec.mutable_hidden_bias() = RandomRef({33}, 2);
  *spec.mutable_output_weight() = RandomRef({7, 33}, 3);
  return spec;
}

// log2(8 |d| / (side - 1) + 1) / 3, the nearest double with d's sign.
double CoordinateOracle(int64_t d, int64_t side) {
  Number value;
  mpfr_set_si(value, 8 * std::abs(d), MPFR_RNDN);
  mpfr_div_si(value, value, side - 1, MPFR_RNDN);
  mpfr_add_ui(value, value, 1, MPFR_RNDN);
  mpfr_log2(value, value, MPFR_RNDN);
  mpfr_div_ui(value, value, 3, MPFR_RNDN);
  return std::copysign(mpfr_get_d(value, MPFR_RNDN), d);
}

// What the MLP gives for a query so many rows and columns after its key.
double MlpOracle(const v1::SwinV2& spec, int64_t rows, int64_t columns,
                 int64_t head) {
  const double x = CoordinateOracle(rows, 12);
  const double y = CoordinateOracle(columns, 5);
  const Table hidden_weight = TableAt(spec.hidden_weight());
  const Table hidden_bias = TableAt(spec.hidden_bias());
  const Table output_weight = TableAt(spec.output_weight());
  double sum = 0;
  for (int64_t k = 0; k < 33; ++k) {
    const double first = std::fma(hidden_weight.At(k, 0), x, hidden_bias.At(k));
    const double hidden = std::fma(hidden_weight.At(k, 1), y, first);
    sum = std::fma(output_weight.At(head, k), std::max(hidden, 0.0), sum);
  }
  return sum;
}

double SigmoidOracle(double x, double scale, DataType type) {
  Number value;
  mpfr_set_d(value, -x, MPFR_RNDN);
  mpfr_exp(value, value, MPFR_RNDN);
  mpfr_add_ui(value, value, 1, MPFR_RNDN);
  mpfr_ui_div(value, 16, value, MPFR_RNDN);
  mpfr_mul_d(value, value, scale, MPFR_RNDN);
  return RoundedBy(value, type);
}

TEST(SwinV2, EveryKernelSetGivesTheStatedProductsAndOneRounding) {
  const v1::SwinV2 spec = RandomSpec();
  for (const KernelSet* kernels : SupportedKernelSets()) {
    EngineHarness engine({}, *kernels);
    for (const double scale : {1.0, -0.3}) {
      for (const DataType type : kFloatTypes) {
        const std::vector<double> got =
            engine.Numbers(WithOutput(spec, Typed(type) + Scaled(scale)));
        ASSERT_EQ(got.size(), 7 * 5 * 9);
        for (int64_t at = 0; at < 7 * 5 * 9; ++at) {
          const int64_t rows = 2 - at / 9 % 5;
          const int64_t columns = 4 - at % 9;
          const double x = MlpOracle(spec, rows, columns, at / 45);
          ASSERT_TRUE(Same(got[at], SigmoidOracle(x, scale, type)))
              << kernels->name << " " << at;
        }
      }
    }
  }
}

TEST(SwinV2, WindowsAndHeadsAreSlices) {
  EngineHarness engine;
  EngineHarness tiny({.memory_budget_bytes = 6000});
  const v1::SwinV2 spec = RandomSpec();
  const std::vector<double> whole = engine.Numbers(WithOutput(spec, kDense));
  const v1::TensorSpec window =
      With(spec,
           "grid {queries {begin: 4 end: 9} keys {begin: 3 end: 15} "
           "heads {begin: 2 end: 5}}");
  std::vector<double> want;
  for (int64_t h = 2; h < 5; ++h) {
    for (int64_t i = 4; i < 9; ++i) {
      for (int64_t j = 3; j < 15; ++j) {
        want.push_back(whole[(h * 15 + i) * 15 + j]);
      }
    }
  }
  EXPECT_EQ(engine.Numbers(window), want);
  EXPECT_EQ(tiny.Numbers(window), want);
  engine.ExpectSliceable(SpecOf(spec));
}

TEST(SwinV2, FarFromZeroTheSigmoidIsItsLimitNotNan) {
  for (const double factor : {3e38, 5000.0, 900.0, 150.0}) {
    for (const DataType type : kFloatTypes) {
      for (const double scale : {1.0, -3.0}) {
        const std::vector<double> got =
            Block(Coordinate(1, 2, false, factor), Typed(type) + Scaled(scale));
        ASSERT_EQ(got.size(), 3);
        EXPECT_EQ(got[0], 16 * scale);
        EXPECT_EQ(got[1], 8 * scale);
        const double x = -factor * CoordinateOracle(1, 2);
        const double want = x < -10000 ? std::copysign(0, scale)
                                       : SigmoidOracle(x, scale, type);
        EXPECT_TRUE(Same(got[2], want)) << factor << " " << got[2];
      }
    }
  }
}

// 16 scale lies halfway between two F32, and the sigmoid just below it.
TEST(SwinV2, ALimitThatIsATieIsRoundedDown) {
  const double scale = 1 + 0x1p-24 + 0x1p-23;
  EXPECT_EQ(Block(Coordinate(1, 2, false, 5000), Scaled(scale))[0],
            16 * (1 + 0x1p-23));
}

TEST(SwinV2, RefusesLayersThatDoNotFitEachOther) {
  const auto refusal = [](void (*change)(v1::SwinV2&)) {
    v1::SwinV2 spec = RandomSpec();
    change(spec);
    return RefusalOf(spec);
  };
  EXPECT_THAT(refusal([](v1::SwinV2& spec) {
                *spec.mutable_hidden_weight() = RandomRef({33, 3}, 1);
              }),
              IsInvalid("swin_v2.hidden_weight: got shape [33, 3], want [33 "
                        "hidden, 2 coordinates]"));
  EXPECT_THAT(refusal([](v1::SwinV2& spec) {
                *spec.mutable_hidden_bias() = RandomRef({32}, 1);
              }),
              IsInvalid("swin_v2.hidden_bias: got shape [32], want [33 "
                        "hidden]"));
  EXPECT_THAT(refusal([](v1::SwinV2& spec) {
                spec.set_num_heads(7);
                *spec.mutable_output_weight() = RandomRef({33, 7}, 1);
              }),
              IsInvalid("swin_v2.output_weight: got shape [33, 7], want [7 "
                        "heads (num_heads), 33 hidden]"));
  EXPECT_THAT(refusal([](v1::SwinV2& spec) {
                *spec.mutable_hidden_bias() =
                    Ref(TableOf({33}, std::vector<double>(33, 1e300)));
              }),
              IsInvalid("swin_v2.hidden_bias: got 1e+300 at 0, want numbers "
                        "within F32's range"));
}

TEST(SwinV2, RefusesAPretrainedSideOfOneForALongerSide) {
  v1::SwinV2 spec = RandomSpec();
  spec.set_pretrained_window_height(1);
  EXPECT_THAT(RefusalOf(spec),
              IsInvalid("swin_v2.pretrained_window_height: "
                        "got 1, want at least 2 for a window"));
}

TEST(SwinV2, IdentityIsTheSameForAPretrainedWindowGivenAsItsOwn) {
  v1::SwinV2 spec = RandomSpec();
  spec.clear_pretrained_window_height();
  const std::string identity = IdentityOf(spec);
  spec.set_pretrained_window_height(spec.window_height());
  EXPECT_EQ(IdentityOf(spec), identity);
  spec.set_pretrained_window_height(spec.window_height() + 1);
  EXPECT_NE(IdentityOf(spec), identity);
}

}  // namespace
}  // namespace attnbias::swin_v2_test
