// SPDX-License-Identifier: Apache-2.0
// Swin-V2's continuous position bias: published coordinates, and the MLP
// against fused multiplications in the stated order and MPFR's sigmoid.
#include "core/encoding/spec/swin_v2.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/encoding/make_encoding.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/mpfr_oracle.h"
#include "tests/testing/engine_harness.h"
#include "tests/testing/status_matchers.h"

namespace attnbias::swin_v2_test {
namespace {

using ::testing::HasSubstr;

Table TableOf(std::vector<int64_t> shape, const std::vector<double>& values) {
  return *Table::Create(
      DataType::kF64, shape,
      {reinterpret_cast<const char*>(values.data()), values.size() * 8},
      TableLayout::kBucketsHeads);
}

// An MLP whose output is `factor` times the coordinate on one side.
SwinV2Spec Coordinate(int64_t height, int64_t width, bool of_rows,
                      double factor = 1) {
  const double h = of_rows ? 1 : 0;
  const double w = of_rows ? 0 : 1;
  return {.window_height = height,
          .window_width = width,
          .num_heads = 1,
          .hidden_weight = TableOf({2, 2}, {h, w, -h, -w}),
          .hidden_bias = TableOf({2}, {0, 0}),
          .output_weight = TableOf({1, 2}, {factor, -factor})};
}

// The coordinate of a query `distance` after its key, from the bias.
double CoordinateAt(const SwinV2Spec& spec, int64_t distance) {
  TensorSpec tensor{spec, {}, {.data_type = DataType::kF64}};
  const std::vector<double> block = EngineHarness().Numbers(tensor);
  // One row: columns count key - query.
  const double bias = block[spec.window_width - 1 - distance];
  return std::log(bias / (16 - bias));
}

TEST(SwinV2, CoordinatesAreThePublishedOnes) {
  const SwinV2Spec own = Coordinate(1, 8, false);
  EXPECT_NEAR(CoordinateAt(own, 1), 0.366511891, 1e-9);
  EXPECT_NEAR(CoordinateAt(own, 7), 1.056641667, 1e-9);
  EXPECT_NEAR(CoordinateAt(own, -1), -0.366511891, 1e-9);
  EXPECT_EQ(CoordinateAt(own, 0), 0);
  SwinV2Spec pretrained = Coordinate(1, 16, false);
  pretrained.pretrained_window_width = 8;
  EXPECT_NEAR(CoordinateAt(pretrained, 15), 1.393776588, 1e-9);
}

TEST(SwinV2, WindowOfOneIsZeroNotNan) {
  for (const bool of_rows : {true, false}) {
    const std::vector<double> got =
        EngineHarness().Numbers({Coordinate(1, 1, of_rows), {}, {}});
    EXPECT_THAT(got, testing::ElementsAre(8));
  }
}

TEST(SwinV2, SidesAreNotSwapped) {
  const std::vector<double> rows =
      EngineHarness().Numbers({Coordinate(2, 3, true), {}, {}});
  const std::vector<double> columns =
      EngineHarness().Numbers({Coordinate(2, 3, false), {}, {}});
  ASSERT_EQ(rows.size(), 15);
  for (int64_t at = 0; at < 15; ++at) {
    EXPECT_EQ(rows[at] == 8, at / 5 == 1) << at;
    EXPECT_EQ(columns[at] == 8, at % 5 == 2) << at;
  }
  // A query above its key has a negative coordinate, and less than 8.
  EXPECT_GT(rows.front(), 8);
  EXPECT_LT(rows.back(), 8);
}

SwinV2Spec RandomSpec() {
  return {.window_height = 3,
          .window_width = 5,
          .num_heads = 7,
          .pretrained_window_height = 12,
          .hidden_weight = RandomTable({33, 2}, 1),
          .hidden_bias = RandomTable({33}, 2),
          .output_weight = RandomTable({7, 33}, 3)};
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
double MlpOracle(const SwinV2Spec& spec, int64_t rows, int64_t columns,
                 int64_t head) {
  const double x = CoordinateOracle(rows, 12);
  const double y = CoordinateOracle(columns, 5);
  double sum = 0;
  for (int64_t k = 0; k < 33; ++k) {
    const double first =
        std::fma(spec.hidden_weight->At(k, 0), x, spec.hidden_bias->At(k));
    const double hidden = std::fma(spec.hidden_weight->At(k, 1), y, first);
    sum = std::fma(spec.output_weight->At(head, k), std::max(hidden, 0.0), sum);
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
  const SwinV2Spec spec = RandomSpec();
  for (const KernelSet* kernels : SupportedKernelSets()) {
    EngineHarness engine({}, *kernels);
    for (const double scale : {1.0, -0.3}) {
      for (const DataType type : kFloatTypes) {
        const std::vector<double> got =
            engine.Numbers({spec, {}, {.data_type = type, .scale = scale}});
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
  const SwinV2Spec spec = RandomSpec();
  const std::vector<double> whole =
      engine.Numbers({spec, {}, {.form = Form::kDense}});
  const TensorSpec window{
      spec, GridExtent{Range{4, 9}, Range{3, 15}, Range{2, 5}}, {}};
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
  engine.ExpectSliceable({spec, {}, {}});
}

TEST(SwinV2, FarFromZeroTheSigmoidIsItsLimitNotNan) {
  for (const double factor : {3e38, 5000.0, 900.0, 150.0}) {
    for (const DataType type : kFloatTypes) {
      for (const double scale : {1.0, -3.0}) {
        const std::vector<double> got =
            EngineHarness().Numbers({Coordinate(1, 2, false, factor),
                                     {},
                                     {.data_type = type, .scale = scale}});
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
  const std::vector<double> got = EngineHarness().Numbers(
      {Coordinate(1, 2, false, 5000), {}, {.scale = scale}});
  EXPECT_EQ(got[0], 16 * (1 + 0x1p-23));
}

TEST(SwinV2, BadHyperparametersAreNamed) {
  struct Case {
    const char* name;
    void (*change)(SwinV2Spec&, Output&);
    const char* message;
  };
  const Case cases[] = {
      {"height", [](SwinV2Spec& s, Output&) { s.window_height = 300; },
       "swin_v2.window_height: got 300"},
      {"width", [](SwinV2Spec& s, Output&) { s.window_width = -1; },
       "swin_v2.window_width: got -1"},
      {"heads", [](SwinV2Spec& s, Output&) { s.num_heads = 65537; },
       "swin_v2.num_heads: got 65537"},
      {"pretrained for one",
       [](SwinV2Spec& s, Output&) { s.pretrained_window_height = 1; },
       "swin_v2.pretrained_window_height: got 1, want an integer in [2, 256] "
       "for a window of 3"},
      {"pretrained",
       [](SwinV2Spec& s, Output&) { s.pretrained_window_width = 257; },
       "swin_v2.pretrained_window_width: got 257"},
      {"no hidden weight",
       [](SwinV2Spec& s, Output&) { s.hidden_weight.reset(); },
       "swin_v2.hidden_weight: not set"},
      {"three coordinates",
       [](SwinV2Spec& s, Output&) {
         s.hidden_weight = RandomTable({33, 3}, 1);
       },
       "swin_v2.hidden_weight: got shape [33, 3], want [33 hidden, 2 "
       "coordinates]"},
      {"no hidden bias", [](SwinV2Spec& s, Output&) { s.hidden_bias.reset(); },
       "swin_v2.hidden_bias: not set"},
      {"other hidden bias",
       [](SwinV2Spec& s, Output&) { s.hidden_bias = RandomTable({32}, 1); },
       "swin_v2.hidden_bias: got shape [32], want [33 hidden]"},
      {"swapped output",
       [](SwinV2Spec& s, Output&) {
         s.output_weight = RandomTable({33, 7}, 1);
       },
       "swin_v2.output_weight: got shape [33, 7], want [7 heads (num_heads), "
       "33 hidden]"},
      {"overflow",
       [](SwinV2Spec& s, Output&) {
         s.hidden_bias = TableOf({33}, std::vector<double>(33, 1e300));
       },
       "swin_v2.hidden_bias: got 1e+300 at 0, want numbers within F32's range"},
      {"buckets", [](SwinV2Spec&, Output& o) { o.values = Values::kBuckets; },
       "output.values: got BUCKETS, want BIAS: swin_v2 has no buckets"},
      {"scale", [](SwinV2Spec&, Output& o) { o.scale = 0; },
       "output.scale: got 0"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    SwinV2Spec spec = RandomSpec();
    Output output;
    c.change(spec, output);
    EXPECT_THAT(
        MakeEncoding(spec, output),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message)));
  }
}

TEST(SwinV2, ThePretrainedWindowIsPartOfTheIdentityUnlessItIsTheOwn) {
  const auto fingerprint = [](SwinV2Spec spec) {
    return EngineHarness().Plan({std::move(spec), {}, {}})->fingerprint();
  };
  SwinV2Spec spec = RandomSpec();
  const std::string pretrained = fingerprint(spec);
  spec.pretrained_window_height.reset();
  const std::string own = fingerprint(spec);
  EXPECT_NE(own, pretrained);
  spec.pretrained_window_height = 3;
  EXPECT_EQ(own, fingerprint(spec));
}

}  // namespace
}  // namespace attnbias::swin_v2_test
