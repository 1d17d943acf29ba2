// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/sinusoidal_oracle.h"
#include "tests/testing/filled.h"

namespace attnbias::multi_axis_sinusoidal_test {
namespace {

using Spec = v1::MultiAxisSinusoidal;

// The layouts, each of several axes and of one.
constexpr char kTensor2Tensor[] = "layout: MULTI_AXIS_LAYOUT_TENSOR2TENSOR ";
constexpr char kInterleaved[] = "layout: MULTI_AXIS_LAYOUT_INTERLEAVED ";
constexpr char kConcatenated[] = "layout: MULTI_AXIS_LAYOUT_CONCATENATED ";
constexpr auto kOneTensor2Tensor = v1::SINUSOIDAL_LAYOUT_TENSOR2TENSOR;
constexpr auto kOneConcatenated = v1::SINUSOIDAL_LAYOUT_CONCATENATED;

Spec SpecWith(const std::string& layout, const std::string& fields) {
  return Parse<Spec>(layout + fields);
}

// What a position of an axis counts as.
void SetReal(const Spec& spec, int axis, int64_t position, mpfr_ptr real) {
  mpfr_set_si(real, position, MPFR_RNDN);
  if (spec.axis_lengths().empty()) return;
  Number length;
  mpfr_set_si(length, spec.axis_lengths(axis), MPFR_RNDN);
  mpfr_add_d(length, length, spec.has_axis_eps() ? spec.axis_eps() : 1e-6,
             MPFR_RNDN);
  mpfr_add_d(real, real, spec.axis_offset(), MPFR_RNDN);
  mpfr_mul_d(real, real,
             spec.has_axis_scale() ? spec.axis_scale() : 6.283185307179586,
             MPFR_RNDN);
  mpfr_div(real, real, length, MPFR_RNDN);
}

// Every axis' columns are those of a sinusoidal table of `axis`; what is left
// over is zero.
void ExpectTables(const Spec& spec, const SinusoidTable& axis, Range rows,
                  double scale) {
  SinusoidalOracle oracle(axis);
  Number real;
  for (const DataType type : kFloatTypes) {
    std::vector<std::byte> bytes(rows.size() * spec.dim() * SizeOf(type));
    MakeWith(spec, Scaled(scale))
        ->prepare({type, scale}, *SupportedKernelSets().front())
        ->Fill({{0, 1}, rows}, bytes.data(), 0);
    for (int64_t row = 0; row < rows.size(); ++row) {
      for (int64_t column = 0; column < spec.dim(); ++column) {
        double wanted = 0;
        if (column < axis.dim * spec.num_axes()) {
          SetReal(spec, static_cast<int>(column / axis.dim), rows.begin + row,
                  real);
          wanted = oracle.Rounded(real, column % axis.dim, type, scale);
        }
        const double got =
            ElementAt(type, bytes.data(), row * spec.dim() + column);
        ASSERT_TRUE(Same(got, wanted))
            << NameOf(type) << " position " << rows.begin + row << " column "
            << column << ": got " << got << ", want " << wanted;
      }
    }
  }
}

TEST(MultiAxisSinusoidal, IsATableForEveryAxis) {
  for (const double scale : {1.0, -0.3}) {
    ExpectTables(SpecWith(kInterleaved, "dim: 16 num_axes: 2"), {.dim = 8},
                 {-5, 300}, scale);
    ExpectTables(SpecWith(kConcatenated, "dim: 15 num_axes: 3 base: 500"),
                 {.dim = 5, .base = 500, .layout = kOneConcatenated},
                 {100, 200}, scale);
    ExpectTables(
        SpecWith(kTensor2Tensor, "dim: 23 num_axes: 3 min_timescale: 2"),
        {.dim = 6, .layout = kOneTensor2Tensor, .min_timescale = 2}, {0, 100},
        scale);
  }
}

TEST(MultiAxisSinusoidal, PositionsAreFractionsOfALength) {
  const std::string detr = "dim: 24 num_axes: 2 axis_lengths: [37, 50]";
  for (const double scale : {1.0, -0.3}) {
    for (const char* offset : {"", " axis_offset: -0.5", " axis_offset: 3",
                               " axis_offset: 1000.5"}) {
      ExpectTables(SpecWith(kInterleaved, detr + offset), {.dim = 12}, {-3, 60},
                   scale);
    }
    // Rows so wide that a piece of a table is one.
    ExpectTables(SpecWith(kConcatenated,
                          "dim: 8196 num_axes: 1 base: 20 axis_lengths: 7 "
                          "axis_scale: 100 axis_eps: 0.25 axis_offset: 0.5"),
                 {.dim = 8196, .base = 20, .layout = kOneConcatenated}, {6, 9},
                 scale);
    ExpectTables(
        SpecWith(kTensor2Tensor,
                 "dim: 23 num_axes: 3 max_timescale: 50 axis_scale: 1000 "
                 "axis_lengths: [1, 1073741824, 9] axis_eps: 0"),
        {.dim = 6, .layout = kOneTensor2Tensor, .max_timescale = 50}, {0, 40},
        scale);
  }
}

// Frequencies too low for the farthest position to turn, and the highest.
TEST(MultiAxisSinusoidal, FractionsReachTheirExtremes) {
  const int64_t farthest = int64_t{1} << 38;
  ExpectTables(
      SpecWith(kTensor2Tensor,
               "dim: 4 num_axes: 1 max_timescale: 1e18 axis_scale: 1e-3 "
               "axis_lengths: 1073741824 axis_eps: 1 axis_offset: -0.5"),
      {.dim = 4, .layout = kOneTensor2Tensor, .max_timescale = 1e18},
      {-farthest, 3 - farthest}, 1);
  ExpectTables(SpecWith(kInterleaved,
                        "dim: 4 num_axes: 1 base: 3 axis_scale: 1e3 "
                        "axis_lengths: 1 axis_offset: 999999.5"),
               {.dim = 4, .base = 3}, {farthest - 2, farthest + 1}, 1);
  EXPECT_EQ(
      MakeWith(SpecWith(kInterleaved, "dim: 2 num_axes: 1 axis_lengths: 1"))
          ->domain,
      (Range{-farthest, farthest + 1}));
}

TEST(MultiAxisSinusoidal, DealsColumnsOut) {
  const std::vector<AxisColumns> columns =
      MakeWith(SpecWith(kTensor2Tensor, "dim: 23 num_axes: 3"))->axis_columns;
  ASSERT_EQ(columns.size(), 3);
  for (int64_t axis = 0; axis < 3; ++axis) {
    EXPECT_EQ(columns[axis].axis, axis);
    EXPECT_EQ(columns[axis].columns.begin, 6 * axis);
  }
  EXPECT_EQ(columns[1].columns.end, 12);
  EXPECT_EQ(columns[2].columns.end, 23);
}

TEST(BadMultiAxisSinusoidal, IsRefusedByName) {
  const std::pair<Spec, const char*> kCases[] = {
      {SpecWith(kInterleaved, "dim: 5 num_axes: 3"),
       "multi_axis_sinusoidal.dim: got 5, want at least 6 (2 num_axes)"},
      {SpecWith(kInterleaved, "dim: 9 num_axes: 2"),
       "multi_axis_sinusoidal.dim: got 9, want a multiple of 2 (num_axes)"},
      {SpecWith(kTensor2Tensor,
                "dim: 8 num_axes: 2 min_timescale: 5 max_timescale: 4"),
       "multi_axis_sinusoidal.max_timescale: got 4, want at least 5"},
      {SpecWith(kInterleaved, "dim: 8 num_axes: 2 axis_lengths: 3"),
       "multi_axis_sinusoidal.axis_lengths: got 1 numbers, want 2 (num_axes)"},
      {SpecWith(kInterleaved,
                "dim: 4 num_axes: 1 axis_lengths: 3 axis_offset: 0.3"),
       "multi_axis_sinusoidal.axis_offset: got 0.3, want a multiple of 0.5"},
  };
  for (const auto& [spec, message] : kCases) {
    EXPECT_THAT(RefusalOf(spec), IsInvalid(message));
  }
}

}  // namespace
}  // namespace attnbias::multi_axis_sinusoidal_test
