// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <vector>

#include "core/encoding/make_encoding.h"
#include "core/encoding/spec/sinusoidal.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/sinusoidal_oracle.h"
#include "tests/testing/status_matchers.h"

namespace attnbias {
namespace {

using testing::StartsWith;
using Layout = MultiAxisLayout;
using Spec = MultiAxisSinusoidalSpec;

EncodingPtr Made(const Spec& spec, double scale = 1) {
  Output output;
  output.scale = scale;
  absl::StatusOr<EncodingPtr> encoding = MakeEncoding(spec, output);
  EXPECT_THAT(encoding, IsOk());
  return *encoding;
}

// Every axis' columns are those of a sinusoidal table of `axis`; what is left
// over is zero.
void ExpectTables(const Spec& spec, const SinusoidalSpec& axis, Range rows,
                  double scale) {
  SinusoidalOracle oracle(axis);
  for (const DataType type : kFloatTypes) {
    std::vector<std::byte> bytes(rows.size() * spec.dim * SizeOf(type));
    Made(spec, scale)
        ->prepare({type, scale}, *SupportedKernelSets().front())
        ->Fill({{0, 1}, rows}, bytes.data(), 0);
    for (int64_t row = 0; row < rows.size(); ++row) {
      for (int64_t column = 0; column < spec.dim; ++column) {
        const double wanted =
            column < axis.dim * spec.num_axes
                ? oracle.Rounded(rows.begin + row, column % axis.dim, type,
                                 scale)
                : 0;
        const double got =
            ElementAt(type, bytes.data(), row * spec.dim + column);
        ASSERT_TRUE(Same(got, wanted))
            << NameOf(type) << " position " << rows.begin + row << " column "
            << column << ": got " << got << ", want " << wanted;
      }
    }
  }
}

TEST(MultiAxisSinusoidal, IsATableForEveryAxis) {
  for (const double scale : {1.0, -0.3}) {
    ExpectTables({.dim = 16, .num_axes = 2, .layout = Layout::kInterleaved},
                 {.dim = 8}, {-5, 300}, scale);
    ExpectTables(
        {.dim = 15,
         .num_axes = 3,
         .layout = Layout::kConcatenated,
         .base = 500},
        {.dim = 5, .base = 500, .layout = SinusoidalLayout::kConcatenated},
        {100, 200}, scale);
    ExpectTables({.dim = 23,
                  .num_axes = 3,
                  .layout = Layout::kTensor2Tensor,
                  .min_timescale = 2},
                 {.dim = 6,
                  .layout = SinusoidalLayout::kTensor2Tensor,
                  .min_timescale = 2},
                 {0, 100}, scale);
  }
}

TEST(MultiAxisSinusoidal, DealsColumnsOut) {
  const std::vector<AxisColumns> columns =
      Made({.dim = 23, .num_axes = 3, .layout = Layout::kTensor2Tensor})
          ->axis_columns;
  ASSERT_EQ(columns.size(), 3);
  for (int64_t axis = 0; axis < 3; ++axis) {
    EXPECT_EQ(columns[axis].axis, axis);
    EXPECT_EQ(columns[axis].columns.begin, 6 * axis);
  }
  EXPECT_EQ(columns[1].columns.end, 12);
  EXPECT_EQ(columns[2].columns.end, 23);
}

TEST(BadMultiAxisSinusoidal, IsRefusedByName) {
  struct Bad {
    Spec spec;
    const char* message;
  };
  const Bad bads[] = {
      {{.dim = 8},
       "multi_axis_sinusoidal.num_axes: got 0, want an integer in "
       "[1, 4]"},
      {{.dim = 80, .num_axes = 5}, "multi_axis_sinusoidal.num_axes: got 5"},
      {{.dim = 5, .num_axes = 3, .layout = Layout::kInterleaved},
       "multi_axis_sinusoidal.dim: got 5, want an integer in [6, 65536]"},
      {{.dim = 65537, .num_axes = 1, .layout = Layout::kInterleaved},
       "multi_axis_sinusoidal.dim: got 65537"},
      {{.dim = 8, .num_axes = 2}, "multi_axis_sinusoidal.layout: not set"},
      {{.dim = 9, .num_axes = 2, .layout = Layout::kInterleaved},
       "multi_axis_sinusoidal.dim: got 9, want a multiple of 2 (num_axes)"},
      {{.dim = 8, .num_axes = 2, .layout = Layout::kInterleaved, .base = NAN},
       "multi_axis_sinusoidal.base: "},
      {{.dim = 8, .num_axes = 2, .layout = Layout::kTensor2Tensor, .base = 5},
       "multi_axis_sinusoidal.base: got 5, want none"},
      {{.dim = 8,
        .num_axes = 2,
        .layout = Layout::kInterleaved,
        .min_timescale = 2},
       "multi_axis_sinusoidal.min_timescale: got 2, want none"},
      {{.dim = 8,
        .num_axes = 2,
        .layout = Layout::kTensor2Tensor,
        .max_timescale = 0.5},
       "multi_axis_sinusoidal.max_timescale: got 0.5"},
  };
  for (const Bad& bad : bads) {
    EXPECT_THAT(
        MakeEncoding(bad.spec, Output()),
        StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(bad.message)));
  }
}

std::string IdentityOf(const Spec& spec, double scale = 1) {
  const EncodingPtr encoding = Made(spec, scale);
  return encoding->identity;
}

TEST(MultiAxisSinusoidalIdentity, ChangesWithEveryField) {
  const Layout t2t = Layout::kTensor2Tensor;
  const std::vector<std::string> identities = {
      IdentityOf({.dim = 8, .num_axes = 2, .layout = t2t}),
      IdentityOf({.dim = 8, .num_axes = 2, .layout = t2t}, 2),
      IdentityOf({.dim = 9, .num_axes = 2, .layout = t2t}),
      IdentityOf({.dim = 8, .num_axes = 1, .layout = t2t}),
      IdentityOf({.dim = 8, .num_axes = 2, .layout = Layout::kInterleaved}),
      IdentityOf(
          {.dim = 8, .num_axes = 2, .layout = Layout::kInterleaved, .base = 5}),
      IdentityOf({.dim = 8, .num_axes = 2, .layout = t2t, .min_timescale = 2}),
      IdentityOf({.dim = 8, .num_axes = 2, .layout = t2t, .max_timescale = 2}),
  };
  for (size_t i = 0; i < identities.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(identities[i], identities[j]);
  }
}

}  // namespace
}  // namespace attnbias
