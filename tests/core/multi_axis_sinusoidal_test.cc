// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/encoding/make_encoding.h"
#include "core/encoding/spec/sinusoidal.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/sinusoidal_oracle.h"
#include "tests/testing/status_matchers.h"

namespace attnbias::multi_axis_sinusoidal_test {
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

// What a position of an axis counts as.
void SetReal(const Spec& spec, int64_t axis, int64_t position, mpfr_ptr real) {
  mpfr_set_si(real, position, MPFR_RNDN);
  if (spec.axis_lengths.empty()) return;
  Number length;
  mpfr_set_si(length, spec.axis_lengths[axis], MPFR_RNDN);
  mpfr_add_d(length, length, spec.axis_eps, MPFR_RNDN);
  mpfr_add_d(real, real, spec.axis_offset, MPFR_RNDN);
  mpfr_mul_d(real, real, spec.axis_scale, MPFR_RNDN);
  mpfr_div(real, real, length, MPFR_RNDN);
}

// Every axis' columns are those of a sinusoidal table of `axis`; what is left
// over is zero.
void ExpectTables(const Spec& spec, const SinusoidalSpec& axis, Range rows,
                  double scale) {
  SinusoidalOracle oracle(axis);
  Number real;
  for (const DataType type : kFloatTypes) {
    std::vector<std::byte> bytes(rows.size() * spec.dim * SizeOf(type));
    Made(spec, scale)
        ->prepare({type, scale}, *SupportedKernelSets().front())
        ->Fill({{0, 1}, rows}, bytes.data(), 0);
    for (int64_t row = 0; row < rows.size(); ++row) {
      for (int64_t column = 0; column < spec.dim; ++column) {
        double wanted = 0;
        if (column < axis.dim * spec.num_axes) {
          SetReal(spec, column / axis.dim, rows.begin + row, real);
          wanted = oracle.Rounded(real, column % axis.dim, type, scale);
        }
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

TEST(MultiAxisSinusoidal, PositionsAreFractionsOfALength) {
  const Spec detr = {.dim = 24,
                     .num_axes = 2,
                     .layout = Layout::kInterleaved,
                     .axis_lengths = {37, 50}};
  for (const double scale : {1.0, -0.3}) {
    ExpectTables(detr, {.dim = 12}, {-3, 60}, scale);
    for (const double offset : {-0.5, 3.0, 1000.5}) {
      Spec deformable = detr;
      deformable.axis_offset = offset;
      ExpectTables(deformable, {.dim = 12}, {-3, 60}, scale);
    }
    // Rows so wide that a piece of a table is one.
    ExpectTables(
        {.dim = 4098 * 2,
         .num_axes = 1,
         .layout = Layout::kConcatenated,
         .base = 20,
         .axis_lengths = {7},
         .axis_scale = 100,
         .axis_eps = 0.25,
         .axis_offset = 0.5},
        {.dim = 8196, .base = 20, .layout = SinusoidalLayout::kConcatenated},
        {6, 9}, scale);
    ExpectTables({.dim = 23,
                  .num_axes = 3,
                  .layout = Layout::kTensor2Tensor,
                  .max_timescale = 50,
                  .axis_lengths = {1, 1 << 30, 9},
                  .axis_scale = 1000,
                  .axis_eps = 0},
                 {.dim = 6,
                  .layout = SinusoidalLayout::kTensor2Tensor,
                  .max_timescale = 50},
                 {0, 40}, scale);
  }
}

// Frequencies too low for the farthest position to turn, and the highest.
TEST(MultiAxisSinusoidal, FractionsReachTheirExtremes) {
  const int64_t farthest = int64_t{1} << 38;
  ExpectTables({.dim = 4,
                .num_axes = 1,
                .layout = Layout::kTensor2Tensor,
                .min_timescale = 1,
                .max_timescale = 1e18,
                .axis_lengths = {1 << 30},
                .axis_scale = 1e-3,
                .axis_eps = 1,
                .axis_offset = -0.5},
               {.dim = 4,
                .layout = SinusoidalLayout::kTensor2Tensor,
                .min_timescale = 1,
                .max_timescale = 1e18},
               {-farthest, 3 - farthest}, 1);
  ExpectTables({.dim = 4,
                .num_axes = 1,
                .layout = Layout::kInterleaved,
                .base = 3,
                .axis_lengths = {1},
                .axis_scale = 1e3,
                .axis_offset = 999999.5},
               {.dim = 4, .base = 3}, {farthest - 2, farthest + 1}, 1);
  EXPECT_EQ(Made({.dim = 2,
                  .num_axes = 1,
                  .layout = Layout::kInterleaved,
                  .axis_lengths = {1}})
                ->domain,
            (Range{-farthest, farthest + 1}));
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

Spec Fractions(std::vector<int64_t> lengths, double scale = 1, double eps = 0,
               double offset = 0) {
  return {.dim = 8,
          .num_axes = 2,
          .layout = Layout::kInterleaved,
          .axis_lengths = std::move(lengths),
          .axis_scale = scale,
          .axis_eps = eps,
          .axis_offset = offset};
}

TEST(BadMultiAxisSinusoidal, IsRefusedByName) {
  struct Bad {
    Spec spec;
    const char* message;
  };
  const Bad bads[] = {
      {{.dim = 8},
       "multi_axis_sinusoidal.num_axes: not set, want an integer in "
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
      {{.dim = 8,
        .num_axes = 2,
        .layout = Layout::kTensor2Tensor,
        .min_timescale = 0.5},
       "multi_axis_sinusoidal.min_timescale: got 0.5, want a number in [1, "
       "1e+06], a timescale and not a frequency"},
      {{.dim = 8,
        .num_axes = 2,
        .layout = Layout::kInterleaved,
        .axis_scale = 6},
       "multi_axis_sinusoidal.axis_scale: got 6, want none: there are no "
       "axis_lengths"},
      {{.dim = 8,
        .num_axes = 2,
        .layout = Layout::kInterleaved,
        .axis_lengths = {3}},
       "multi_axis_sinusoidal.axis_lengths: got 1 numbers, want 2 (num_axes)"},
      {Fractions({3, 0}),
       "multi_axis_sinusoidal.axis_lengths[1]: got 0, want an integer in "
       "[1, 2^30]"},
      {Fractions({3, 4}, INFINITY),
       "multi_axis_sinusoidal.axis_scale: got inf, want a number in [0.001, "
       "1000]"},
      {Fractions({3, 4}, NAN),
       "multi_axis_sinusoidal.axis_scale: got nan, want a number in "},
      {Fractions({3, 4}, 1, -1e-6),
       "multi_axis_sinusoidal.axis_eps: got -1e-06, want a number in [0, 1]"},
      {Fractions({3, 4}, 1, 0, 0.3),
       "multi_axis_sinusoidal.axis_offset: got 0.3, want a multiple of 0.5"},
      {Fractions({3, 4}, 1, 0, 1e7),
       "multi_axis_sinusoidal.axis_offset: got 1e+07, want a number in "
       "[-1e+06, 1e+06]"},
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
      IdentityOf(Fractions({3, 4})),
      IdentityOf(Fractions({4, 3})),
      IdentityOf(Fractions({3, 4}, 2)),
      IdentityOf(Fractions({3, 4}, 1, 0.5)),
      IdentityOf(Fractions({3, 4}, 1, 0, 0.5)),
  };
  for (size_t i = 0; i < identities.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(identities[i], identities[j]);
  }
}

}  // namespace
}  // namespace attnbias::multi_axis_sinusoidal_test
