// SPDX-License-Identifier: Apache-2.0
// Sinusoids with axes, ladders and column orders.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/encoding/sinusoid/sinusoid.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/expect_rounded.h"
#include "tests/unit/encoding/sinusoidal_oracle.h"
#include "tests/unit/support/filled.h"

namespace attnbias::sinusoidal_axes_test {
namespace {

using Spec = v1::Sinusoidal;

void ExpectRounded(const std::string& text, Range rows, double scale = 1) {
  SCOPED_TRACE(text);
  const Spec spec = Parse<Spec>(text);
  SinusoidalOracle oracle(spec);
  ExpectRowsRounded(
      rows.size(), spec.dim(), scale,
      [&](DataType type, std::byte* out) {
        MakeWith(spec, Scaled(scale))
            ->prepare({type, scale}, *SupportedKernelSets().front())
            ->Fill({{0, 1}, rows}, out, 0);
      },
      [&](int64_t row, int64_t column, mpfr_ptr x) {
        oracle.Set(static_cast<double>(rows.begin + row), column, x);
      },
      kOracleBits);
}

// Does the same at positions that are doubles.
void ExpectRoundedAt(const std::string& text, const RealPositions& positions, double scale = 1) {
  SCOPED_TRACE(text);
  const Spec spec = Parse<Spec>(text);
  SinusoidalOracle oracle(spec);
  const auto shared = std::make_shared<const RealPositions>(positions);
  const int64_t rows = std::ssize(positions[0]);
  ExpectRowsRounded(
      rows, spec.dim(), scale,
      [&](DataType type, std::byte* out) {
        MakeWith(spec, Scaled(scale))
            ->prepare_reals({type, scale}, shared)
            ->Fill({{0, 1}, {0, rows}}, out, 0);
      },
      [&](int64_t row, int64_t column, mpfr_ptr x) {
        oracle.Set(positions[oracle.AxisOf(column)][row], column, x);
      },
      kOracleBits);
}

std::vector<double> RandomReals(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> reals;
  for (int64_t i = 0; i < count; ++i) {
    const double mantissa = static_cast<double>(random() >> (random() % 40));
    reals.push_back(std::ldexp(mantissa, -static_cast<int>(random() % 120)) *
                    (i % 2 == 0 ? 0x1p-24 : -0x1p-24));
  }
  return reals;
}

TEST(SinusoidalAtReals, IsCorrectlyRounded) {
  for (const char* columns : {"INTERLEAVED", "SINES_COSINES", "COSINES_SINES"}) {
    const std::string order = std::string(" columns: COLUMNS_") + columns;
    for (const double scale : {1.0, -0.3}) {
      ExpectRoundedAt("dim: 33" + order, {RandomReals(200, 1)}, scale);
      ExpectRoundedAt("dim: 13 odd: ODD_COLUMN_ZERO" + order,
                      {{0, -0.0, 0.5, 0x1p-149, -0x1p-149, 0x1p40, -0x1p40, 0.1, -1e-30, 999.7,
                        0x1.fffffffffffffp39}},
                      scale);
    }
    // Each axis has its own positions, even if axes share a ladder.
    ExpectRoundedAt("dim: 24 axes {ladder {}} axes {ladder {}} axes {scale: -3}" + order,
                    {RandomReals(40, 2), RandomReals(40, 3), RandomReals(40, 4)});
  }
  ExpectRoundedAt("dim: 8 ladder {frequencies {values: [0, -2.5, 1e6, 1e-30]}}",
                  {RandomReals(60, 5)}, -0.3);
}

TEST(SinusoidalAtReals, AddsOffsets) {
  for (const char* axis :
       {"offset: 0.5", "offset: -0.75 scale: 1e6 length: 1e-6", "offset: 1099511627776",
        "offset: -549755813888.0625 scale: 1e-12 "
        "length: 1e12 eps: 1"}) {
    ExpectRoundedAt(std::string("dim: 12 axes {") + axis + "}",
                    {{0, 0.25, -0.5, 0.75, 12345.375, -1e9, 0x1p-9}});
  }
}

// Real positions that are integers yield the same bits as consecutive positions.
TEST(SinusoidalAtReals, MatchesIntegerPositions) {
  for (const char* text : {"dim: 64", "dim: 9 axes {offset: 0.5 scale: 6.28 length: 37}",
                           "dim: 12 axes {ladder {timescales {min: 2 max: 50}}} axes {}"}) {
    const Spec spec = Parse<Spec>(text);
    const auto encoding = MakeWith(spec);
    std::vector<double> list;
    for (int64_t p = -20; p < 300; ++p) list.push_back(static_cast<double>(p));
    const auto positions =
        std::make_shared<const RealPositions>(std::max(spec.axes_size(), 1), list);
    for (const DataType type : kFloatTypes) {
      std::vector<std::byte> got(320 * spec.dim() * SizeOf(type));
      std::vector<std::byte> want(got.size());
      encoding->prepare_reals({type}, positions)->Fill({{0, 1}, {0, 320}}, got.data(), 0);
      encoding->prepare({type}, *SupportedKernelSets().front())
          ->Fill({{0, 1}, {-20, 300}}, want.data(), 0);
      EXPECT_EQ(got, want) << text << " " << NameOf(type);
    }
  }
}

TEST(SinusoidalAxes, SupportEveryColumnOrder) {
  for (const std::string columns : {"INTERLEAVED", "SINES_COSINES", "COSINES_SINES"}) {
    for (const std::string odd : {"SINE", "ZERO"}) {
      const std::string order = " columns: COLUMNS_" + columns + " odd: ODD_COLUMN_" + odd;
      const std::string across = columns == "INTERLEAVED" ? "" : " across_axes: true";
      for (const int dim : {1, 2, 3, 7, 8, 16, 33, 66}) {
        const std::string text = "dim: " + std::to_string(dim) + order;
        ExpectRounded(text, {-9, 10}, -0.3);
        ExpectRounded(text, {kMaxPosition - 2, kMaxPosition + 1});
      }
      ExpectRounded("dim: 15 axes {} axes {} axes {}" + order, {-5, 300});
      ExpectRounded("dim: 15 axes {} axes {} axes {}" + order + across, {100, 200});
      ExpectRounded(
          "dim: 17 axes {} axes {scale: 3} axes {ladder {}} "
          "axis_dims: [3, 8, 6] ladder {base: 500}" +
              order + across,
          {-50, 70}, -0.3);
    }
  }
  // The remaining columns are zero.
  ExpectRounded("dim: 23 odd: ODD_COLUMN_ZERO axes {} axes {} axes {}", {0, 100});
}

TEST(SinusoidalAxes, SupportEveryLadder) {
  for (const char* ladder :
       {"base: 1", "base: 20", "base: 1e18", "timescales {}", "timescales {min: 2 max: 50}",
        "timescales {min: 1e6 max: 1}", "timescales {min: 1e-6 max: 1e18}",
        "frequencies {values: [1, -1, 0, 1e6, -1e-30, 1e-30]}",
        "frequencies {values: [0, 0, -2.5, 3, 0, 0]}",
        "frequencies {values: [0, 0, 0, 0, 0, 0]}"}) {
    for (const char* order :
         {"", " columns: COLUMNS_SINES_COSINES", " columns: COLUMNS_COSINES_SINES"}) {
      const std::string text = std::string("{") + ladder + "}" + order;
      for (const double scale : {1.0, -0.3}) {
        ExpectRounded("dim: 12 ladder " + text, {-40, 40}, scale);
        ExpectRounded("dim: 11 ladder " + text, {kMaxPosition - 9, kMaxPosition}, scale);
      }
      ExpectRounded("dim: 24 axes {} axes {ladder {" + std::string(ladder) + "}}" + order,
                    {-40, 40});
    }
  }
}

TEST(SinusoidalAxes, TransformPositions) {
  const std::string pi = "scale: 6.283185307179586 eps: 1e-6 ladder {}";
  for (const char* offset : {"0", "-0.5", "3", "1000.5", "0.1", "-0.3", "1e-30", "-1e-12",
                             "1099511627776", "-1099511627775.5", "549755813888.0625"}) {
    const std::string fields = pi + " offset: " + offset;
    for (const double scale : {1.0, -0.3}) {
      ExpectRounded("dim: 24 axes {length: 37 " + fields + "} axes {length: 50 " + fields + "}",
                    {-3, 60}, scale);
    }
    ExpectRounded("dim: 6 axes {offset: " + std::string(offset) + "}",
                  {kMaxPosition - 3, kMaxPosition + 1});
    ExpectRounded("dim: 6 axes {offset: " + std::string(offset) + "}",
                  {-kMaxPosition, 3 - kMaxPosition});
  }
  // Rows wide enough that a piece of a table is a single row.
  ExpectRounded(
      "dim: 8196 axes {length: 7 scale: 100 eps: 0.25 offset: 0.5} "
      "ladder {base: 20} columns: COLUMNS_COSINES_SINES",
      {6, 9});
}

// Frequencies too low for a full turn at the farthest position, and the highest ones.
TEST(SinusoidalAxes, RoundCorrectlyAtExtremes) {
  for (const char* axis :
       {"scale: 1e-12 length: 1e12 eps: 1 offset: -0.5", "scale: -1e-12 length: 1e12 offset: 1e-30",
        "scale: 1e6 length: 1e-6", "scale: -1e6 length: 1e-6 offset: 999999.25"}) {
    for (const char* ladder :
         {"base: 1e18", "timescales {min: 1e-6 max: 1e18}", "timescales {min: 1e6 max: 1}",
          "frequencies {values: [1e6, -1e-30]}"}) {
      const std::string text = std::string("dim: 4 axes {") + axis + "} ladder {" + ladder + "}";
      ExpectRounded(text, {-3, 4});
      ExpectRounded(text, {-kMaxPosition, 3 - kMaxPosition});
      ExpectRounded(text, {kMaxPosition - 3, kMaxPosition + 1}, -0.3);
    }
  }
}

std::string ColumnsOf(const std::string& text) {
  std::string columns;
  const auto encoding = MakeWith(Parse<Spec>(text));
  for (const AxisColumns& run : encoding->axis_columns) {
    absl::StrAppend(&columns, " ", run.axis, ":", run.columns.begin, "-", run.columns.end);
  }
  return columns;
}

TEST(SinusoidalAxes, DistributeColumns) {
  EXPECT_EQ(ColumnsOf("dim: 24 axes {}"), "");
  EXPECT_EQ(ColumnsOf("dim: 23 odd: ODD_COLUMN_ZERO axes {} axes {} axes {}"),
            " 0:0-6 1:6-12 2:12-23");
  EXPECT_EQ(ColumnsOf("dim: 8 columns: COLUMNS_COSINES_SINES axes {} axes {}"), " 0:0-4 1:4-8");
  EXPECT_EQ(ColumnsOf("dim: 10 columns: COLUMNS_SINES_COSINES axes {} axes {} "
                      "across_axes: true axis_dims: [3, 7]"),
            " 0:0-2 1:2-6 0:6-7 1:7-10");
}

TEST(BadSinusoidalAxes, AreRejectedByName) {
  const std::pair<const char*, const char*> kCases[] = {
      {"dim: 5 axes {} axes {} axes {}", "sinusoidal.dim: got 5, want at least 6"},
      {"dim: 9 axes {} axes {}", "sinusoidal.dim: got 9, want a multiple of 2"},
      {"dim: 9 axes {} axes {} axis_dims: 9", "sinusoidal.axis_dims: got 1 numbers, want 2"},
      {"dim: 2 axes {} axes {} axis_dims: [1, 1]",
       "sinusoidal.axis_dims[0]: got 1, want an integer in [2, 65536]"},
      {"dim: 3 odd: ODD_COLUMN_ZERO axes {} axes {} axis_dims: [2, 1]",
       "sinusoidal.axis_dims[1]: got 1, want an integer in [2, 65536]"},
      {"dim: 9 axes {} axes {} axis_dims: [4, 4]",
       "sinusoidal.axis_dims: got 8 columns in total, want 9 (dim)"},
      {"dim: 9 axis_dims: 9", "sinusoidal.axis_dims: got 1 numbers, want none"},
      {"dim: 8 axes {} axes {} across_axes: true",
       "sinusoidal.across_axes: got true, want false, or columns "
       "SINES_COSINES or COSINES_SINES"},
      {"dim: 8 axes {scale: 0}", "sinusoidal.axes[0].scale: got 0, want a number in [-1e+06"},
      {"dim: 8 axes {offset: 1e-40}", "sinusoidal.axes[0].offset: got 1e-40, want a number in"},
      {"dim: 8 axes {eps: 5e-324}",
       "sinusoidal.axes[0].eps: got 4.94066e-324, want a number in [0, 1], 0 or of "},
      {"dim: 8 axes {} axes {length: 0}", "sinusoidal.axes[1].length: got 0, want a number in"},
      {"dim: 8 axes {ladder {}} ladder {base: 20}",
       "sinusoidal.ladder: got a ladder, want none: every axis has its own"},
      {"dim: 8 ladder {frequencies {values: [1, 2]}}",
       "sinusoidal.ladder.frequencies: got 2 numbers, want 4"},
      {"dim: 4 axes {ladder {frequencies {values: [1, 1e7]}}}",
       "sinusoidal.axes[0].ladder.frequencies.values[1]: got 1e+07, want a number"},
      {"dim: 4 ladder {timescales {max: 0.5}}",
       "sinusoidal.ladder.timescales.max: got 0.5, want a number in"},
      {"dim: 4 axes {} axes {} axes {} axes {} axes {}",
       "sinusoidal.axes: got 5 elements, want at most 4"}};
  for (const auto& [text, message] : kCases) {
    EXPECT_THAT(RefusalOf(Parse<Spec>(text)), IsInvalid(message)) << text;
  }
}

}  // namespace
}  // namespace attnbias::sinusoidal_axes_test
