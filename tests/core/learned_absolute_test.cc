// SPDX-License-Identifier: Apache-2.0
// Learned absolute positions: which row stands at a position, and interpolated
// rows against the formula in GMP's rational numbers.
#include "core/encoding/spec/learned_absolute.h"

#include <gmp.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/mpfr_oracle.h"
#include "tests/testing/engine_harness.h"

namespace attnbias::learned_absolute_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kLinear = Interpolation::kLinear;
constexpr auto kAlignCorners = Interpolation::kLinearAlignCorners;

// Values beyond a table's type are its nearest.
template <typename T>
Table TableOf(std::vector<int64_t> shape, const std::vector<double>& values,
              DataType type) {
  std::vector<T> data(values.begin(), values.end());
  return *Table::Create(
      type, shape,
      {reinterpret_cast<const char*>(data.data()), data.size() * sizeof(T)},
      TableLayout::kBucketsHeads);
}

Table F32Table(std::vector<int64_t> shape, const std::vector<double>& values) {
  return TableOf<float>(std::move(shape), values, DataType::kF32);
}

Table F64Table(std::vector<int64_t> shape, const std::vector<double>& values) {
  return TableOf<double>(std::move(shape), values, DataType::kF64);
}

std::vector<double> Normals(int64_t count) {
  std::mt19937_64 random(9);
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& value : values) value = normal(random);
  return values;
}

TableExtent Positions(int64_t begin, int64_t end) {
  return {.positions = Range{begin, end}};
}

TEST(LearnedAbsolute, HasTheTablesRows) {
  EngineHarness engine;
  const std::vector<double> values = Normals(20 * 6);
  const Table table = F64Table({20, 6}, values);
  for (const DataType type : kFloatTypes) {
    for (const double scale : {1.0, 0.3}) {
      const std::vector<double> numbers =
          engine.Numbers({LearnedAbsoluteSpec{.table = table},
                          Positions(3, 17),
                          {.data_type = type, .scale = scale}});
      ASSERT_EQ(numbers.size(), 14 * 6);
      for (size_t at = 0; at < numbers.size(); ++at) {
        Number exact;
        mpfr_set_d(exact, values[3 * 6 + at], MPFR_RNDN);
        mpfr_mul_d(exact, exact, scale, MPFR_RNDN);
        ASSERT_TRUE(Same(numbers[at], RoundedBy(exact, type)));
      }
    }
  }
}

// OPT's embeddings begin at row 2, fairseq's after their padding.
TEST(LearnedAbsolute, BeginsAtItsOffset) {
  EngineHarness engine;
  const Table table = F32Table({4, 2}, {0, 1, 10, 11, 20, 21, 30, 31});
  EXPECT_THAT(engine.Numbers({LearnedAbsoluteSpec{.table = table, .offset = 2},
                              Positions(0, 2),
                              {}}),
              ElementsAre(20, 21, 30, 31));
  EXPECT_THAT(engine.Numbers({LearnedAbsoluteSpec{.table = table, .offset = 2},
                              TableExtent{.position_ids = {{1, -2, -1, 1}}},
                              {}}),
              ElementsAre(30, 31, 0, 1, 10, 11, 30, 31));
  EXPECT_THAT(
      engine.Numbers({LearnedAbsoluteSpec{.table = table, .offset = -1000},
                      Positions(1003, 1004),
                      {}}),
      ElementsAre(30, 31));
}

TEST(LearnedAbsolute, EndsWhereTheTableEnds) {
  EngineHarness engine;
  const LearnedAbsoluteSpec spec = {.table = F32Table({4, 1}, {0, 1, 2, 3}),
                                    .offset = 2};
  for (const TableExtent& extent :
       {Positions(0, 3), Positions(-3, 1),
        TableExtent{.position_ids = {{0, 2}}},
        TableExtent{.position_ids = {{int64_t{1} << 40, 0}}}}) {
    EXPECT_THAT(engine.MakePlan({spec, extent, {}}),
                StatusIs(absl::StatusCode::kOutOfRange,
                         HasSubstr("want them in [-2, 2), which is all that "
                                   "learned_absolute has")));
  }
}

TEST(LearnedAbsolute, HasZerosAtItsPadding) {
  EngineHarness engine;
  const Table table = F32Table({4, 2}, {-1, 1, -2, 2, 3, -3, 4, 4});
  for (const int64_t padding : {0, 1, 3}) {
    const std::vector<double> numbers = engine.Numbers(
        {LearnedAbsoluteSpec{
             .table = table, .offset = 1, .padding_idx = padding},
         Positions(-1, 3),
         {.scale = -1}});
    for (int64_t row = 0; row < 4; ++row) {
      for (int64_t column = 0; column < 2; ++column) {
        const double want = row == padding ? 0 : -table.At(row, column);
        EXPECT_TRUE(Same(numbers[row * 2 + column], want));
      }
    }
  }
}

std::vector<double> Stretched(Interpolation interpolation, int64_t length) {
  EngineHarness engine;
  return engine.Numbers(
      {LearnedAbsoluteSpec{.table = F32Table({4, 1}, {0, 1, 2, 3}),
                           .interpolation = interpolation,
                           .interpolated_length = length},
       Positions(0, length),
       {}});
}

// What torch.nn.functional.interpolate documents of mode "linear".
TEST(Interpolation, ReadsBetweenRowsAsTorchDoes) {
  EXPECT_THAT(Stretched(kLinear, 8),
              ElementsAre(0, .25, .75, 1.25, 1.75, 2.25, 2.75, 3));
  EXPECT_THAT(Stretched(kLinear, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Stretched(kLinear, 2), ElementsAre(.5, 2.5));
  EXPECT_THAT(Stretched(kLinear, 1), ElementsAre(1.5));
  EXPECT_THAT(Stretched(kLinear, 3), ElementsAre(1 / 6.0f, 1.5, 17 / 6.0f));
  EXPECT_THAT(Stretched(kAlignCorners, 7),
              ElementsAre(0, .5, 1, 1.5, 2, 2.5, 3));
  EXPECT_THAT(Stretched(kAlignCorners, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Stretched(kAlignCorners, 2), ElementsAre(0, 3));
  EXPECT_THAT(Stretched(kAlignCorners, 1), ElementsAre(0));
}

// The element of a stretched table, over the rational numbers.
class Oracle {
 public:
  Oracle() { mpq_inits(x_, w_, a_, b_, nullptr); }
  Oracle(const Oracle&) = delete;
  Oracle& operator=(const Oracle&) = delete;
  ~Oracle() { mpq_clears(x_, w_, a_, b_, nullptr); }

  double Rounded(const LearnedAbsoluteSpec& spec, int64_t row, int64_t column,
                 DataType type, double scale) {
    const int64_t rows = spec.table->rows();
    const int64_t length = *spec.interpolated_length;
    if (spec.interpolation == kLinear) {
      // (row + 1/2) rows / length - 1/2
      mpq_set_si(x_, 2 * row + 1, 2);
      mpq_set_si(w_, rows, length);
      mpq_canonicalize(w_);
      mpq_mul(x_, x_, w_);
      mpq_set_si(w_, 1, 2);
      mpq_sub(x_, x_, w_);
    } else {
      mpq_set_si(x_, row * (rows - 1), std::max<int64_t>(length - 1, 1));
      mpq_canonicalize(x_);
    }
    if (mpq_sgn(x_) < 0) mpq_set_si(x_, 0, 1);
    if (mpq_cmp_si(x_, rows - 1, 1) > 0) mpq_set_si(x_, rows - 1, 1);
    mpz_fdiv_q(mpq_numref(w_), mpq_numref(x_), mpq_denref(x_));
    const int64_t below = mpz_get_si(mpq_numref(w_));
    mpz_set_ui(mpq_denref(w_), 1);
    mpq_sub(w_, x_, w_);
    const double a = spec.table->At(below, column);
    if (mpq_sgn(w_) == 0) return Scaled(a, type, scale);
    mpq_set_d(a_, a);
    mpq_set_d(b_, spec.table->At(below + 1, column));
    // a + w (b - a)
    mpq_sub(b_, b_, a_);
    mpq_mul(b_, b_, w_);
    mpq_add(b_, b_, a_);
    mpq_set_d(a_, scale);
    mpq_mul(b_, b_, a_);
    if (mpq_sgn(b_) == 0) return 0;
    mpfr_set_q(value_, b_, MPFR_RNDN);
    return RoundedBy(value_, type);
  }

 private:
  double Scaled(double a, DataType type, double scale) {
    mpfr_set_d(value_, a, MPFR_RNDN);
    mpfr_mul_d(value_, value_, scale, MPFR_RNDN);
    return RoundedBy(value_, type);
  }

  mpq_t x_, w_, a_, b_;
  Number value_{6000};
};

void ExpectRounded(const LearnedAbsoluteSpec& spec, Range rows,
                   double scale = 1) {
  EngineHarness engine;
  Oracle oracle;
  const int64_t columns = spec.table->columns();
  for (const DataType type : kFloatTypes) {
    const std::vector<double> numbers =
        engine.Numbers({spec,
                        Positions(rows.begin, rows.end),
                        {.data_type = type, .scale = scale}});
    for (size_t at = 0; at < numbers.size(); ++at) {
      const int64_t row = rows.begin + static_cast<int64_t>(at) / columns;
      const double want = oracle.Rounded(
          spec, row, static_cast<int64_t>(at) % columns, type, scale);
      ASSERT_TRUE(Same(numbers[at], want))
          << NameOf(type) << " row " << row << " of "
          << *spec.interpolated_length << ": got " << numbers[at] << ", want "
          << want;
    }
  }
}

void ExpectRoundedEverywhere(const Table& table, double scale = 1) {
  for (const Interpolation interpolation : {kLinear, kAlignCorners}) {
    for (const int64_t length : {1, 5, 17, 20, 39, 40, 64, 77, 1000}) {
      ExpectRounded({.table = table,
                     .interpolation = interpolation,
                     .interpolated_length = length},
                    {0, length}, scale);
    }
    const int64_t most = int64_t{1} << 20;
    ExpectRounded({.table = table,
                   .interpolation = interpolation,
                   .interpolated_length = most},
                  {most / 3, most / 3 + 500}, scale);
  }
}

TEST(Interpolation, IsRoundedOnce) {
  const std::vector<double> values = Normals(20 * 3);
  ExpectRoundedEverywhere(F32Table({20, 3}, values));
  ExpectRoundedEverywhere(F64Table({20, 3}, values));
  ExpectRoundedEverywhere(F32Table({20, 3}, values), -0.7);
  ExpectRoundedEverywhere(F64Table({20, 3}, values), 1e-30);
}

// Small integers meet the middle between two F16 or BF16 again and again.
TEST(Interpolation, DecidesTies) {
  std::vector<double> values(20 * 3);
  std::mt19937 random(1);
  for (double& value : values) {
    value = static_cast<double>(random() % 8192) - 4096;
  }
  ExpectRoundedEverywhere(F32Table({20, 3}, values));
  ExpectRoundedEverywhere(F64Table({20, 3}, values), 0.375);
}

TEST(Interpolation, IsRoundedOnceAtTheEdgesOfF64) {
  using Limits = std::numeric_limits<double>;
  std::vector<double> values;
  const double edges[] = {0,
                          -0.0,
                          Limits::max(),
                          -Limits::max(),
                          Limits::denorm_min(),
                          -Limits::denorm_min(),
                          Limits::min(),
                          1,
                          -1,
                          0x1p-301,
                          0x1p301,
                          std::nextafter(1, 2),
                          -std::nextafter(1, 2),
                          1e-45,
                          6e4,
                          -6e4,
                          65520};
  for (const double a : edges) {
    for (const double b : edges) {
      values.push_back(a);
      values.push_back(b);
    }
  }
  const auto rows = static_cast<int64_t>(values.size());
  for (const double scale : {1.0, 1e-300, 3e300}) {
    for (const int64_t length : {2 * rows, 3 * rows + 1}) {
      ExpectRounded({.table = F64Table({rows, 1}, values),
                     .interpolation = kLinear,
                     .interpolated_length = length},
                    {0, length}, scale);
    }
  }
}

TEST(Interpolation, EndsWithItsLength) {
  EngineHarness engine;
  const LearnedAbsoluteSpec spec = {.table = F32Table({2, 1}, {0, 1}),
                                    .offset = 1,
                                    .interpolation = kLinear,
                                    .interpolated_length = 9};
  EXPECT_THAT(engine.MakePlan({spec, Positions(-1, 8), {}}), IsOk());
  EXPECT_THAT(engine.MakePlan({spec, Positions(-1, 9), {}}),
              StatusIs(absl::StatusCode::kOutOfRange,
                       StartsWith("table.positions: got positions in [-1, 9), "
                                  "want them in [-1, 8)")));
}

struct BadSpec {
  const char* name;
  LearnedAbsoluteSpec spec;
  Output output;
  const char* message;
};

class BadLearnedAbsolute : public ::testing::TestWithParam<BadSpec> {};

TEST_P(BadLearnedAbsolute, IsRefusedByName) {
  EXPECT_THAT(EngineHarness().MakePlan(
                  {GetParam().spec, Positions(0, 1), GetParam().output}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith(GetParam().message)));
}

const Table kTable = F32Table({2, 1}, {0, 1});

INSTANTIATE_TEST_SUITE_P(
    Fields, BadLearnedAbsolute,
    ::testing::Values(
        BadSpec{"NoTable", {}, {}, "learned_absolute.table: not set, want"},
        BadSpec{"OneAxis",
                {.table = F32Table({2}, {0, 1})},
                {},
                "learned_absolute.table: got shape [2], want [2 positions, "},
        BadSpec{"ThreeAxes",
                {.table = F32Table({2, 1, 1}, {0, 1})},
                {},
                "learned_absolute.table: got shape [2, 1, 1], want ["},
        BadSpec{"Offset",
                {.table = kTable, .offset = (int64_t{1} << 40) + 1},
                {},
                "learned_absolute.offset: got 1099511627777, want an integer "
                "in [-2^40, 2^40]"},
        BadSpec{"NegativePadding",
                {.table = kTable, .padding_idx = -1},
                {},
                "learned_absolute.padding_idx: got -1, want a row of the "
                "table, in [0, 2)"},
        BadSpec{"PaddingBeyond",
                {.table = kTable, .padding_idx = 2},
                {},
                "learned_absolute.padding_idx: got 2"},
        BadSpec{"PaddingAndInterpolation",
                {.table = kTable,
                 .padding_idx = 1,
                 .interpolation = kLinear,
                 .interpolated_length = 3},
                {},
                "learned_absolute.padding_idx: got 1, want none: "},
        BadSpec{"LengthAlone",
                {.table = kTable, .interpolated_length = 3},
                {},
                "learned_absolute.interpolated_length: got 3, want none"},
        BadSpec{"NoLength",
                {.table = kTable, .interpolation = kLinear},
                {},
                "learned_absolute.interpolated_length: not set, want"},
        BadSpec{"LengthZero",
                {.table = kTable,
                 .interpolation = kLinear,
                 .interpolated_length = 0},
                {},
                "learned_absolute.interpolated_length: got 0, want an integer "
                "in [1, 2^20]"},
        BadSpec{"LengthHuge",
                {.table = kTable,
                 .interpolation = kAlignCorners,
                 .interpolated_length = (1 << 20) + 1},
                {},
                "learned_absolute.interpolated_length: got 1048577"},
        BadSpec{"Buckets",
                {.table = kTable},
                {.values = Values::kBuckets},
                "output.values: got BUCKETS, want BIAS"},
        BadSpec{
            "Scale", {.table = kTable}, {.scale = 0}, "output.scale: got 0"},
        BadSpec{"Mask",
                {.table = kTable},
                {.mask = Mask{.causal = true}},
                "output.mask: got a mask, want none: learned_absolute"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(LearnedAbsolute, IsNamedByEveryField) {
  EngineHarness engine;
  const std::vector<LearnedAbsoluteSpec> specs = {
      {.table = kTable},
      {.table = F32Table({2, 1}, {0, 2})},
      {.table = F32Table({1, 2}, {0, 1})},
      {.table = kTable, .offset = 1},
      {.table = kTable, .padding_idx = 0},
      {.table = kTable, .padding_idx = 1},
      {.table = kTable, .interpolation = kLinear, .interpolated_length = 2},
      {.table = kTable, .interpolation = kLinear, .interpolated_length = 3},
      {.table = kTable,
       .interpolation = kAlignCorners,
       .interpolated_length = 3}};
  std::set<std::string> names;
  for (const LearnedAbsoluteSpec& spec : specs) {
    names.insert(
        engine.Plan({spec, Positions(0, 1), {}})->encoding_fingerprint());
  }
  EXPECT_EQ(names.size(), specs.size());
}

}  // namespace
}  // namespace attnbias::learned_absolute_test
