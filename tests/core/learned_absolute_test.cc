// SPDX-License-Identifier: Apache-2.0
// Learned absolute positions: which row stands at a position, and interpolated
// rows against the formula in GMP's rational numbers.
#include <gmp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/mpfr_oracle.h"
#include "tests/testing/engine_harness.h"
#include "tests/testing/filled.h"

namespace attnbias::learned_absolute_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kLinear = v1::INTERPOLATION_LINEAR;
constexpr auto kAlignCorners = v1::INTERPOLATION_LINEAR_ALIGN_CORNERS;

v1::LearnedAbsolute Rows(const Table& table, const std::string& rest = "") {
  auto spec = Parse<v1::LearnedAbsolute>(rest);
  *spec.mutable_table() = Ref(table);
  return spec;
}

v1::LearnedAbsolute Stretched(const Table& table,
                              v1::Interpolation interpolation, int64_t length) {
  v1::LearnedAbsolute spec = Rows(table);
  spec.set_interpolation(interpolation);
  spec.set_interpolated_length(length);
  return spec;
}

v1::TensorSpec Over(const v1::LearnedAbsolute& spec, int64_t begin, int64_t end,
                    const std::string& output = "") {
  return OverPositions(WithOutput(spec, output), begin, end);
}

std::vector<double> Normals(int64_t count) {
  std::mt19937_64 random(9);
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& value : values) value = normal(random);
  return values;
}

TEST(LearnedAbsolute, HasTheTablesRows) {
  EngineHarness engine;
  const std::vector<double> values = Normals(20 * 6);
  const v1::LearnedAbsolute spec = Rows(TableOf({20, 6}, values));
  for (const DataType type : kFloatTypes) {
    for (const double scale : {1.0, 0.3}) {
      const std::vector<double> numbers =
          engine.Numbers(Over(spec, 3, 17, Typed(type) + Scaled(scale)));
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
  const Table table = TableOf({4, 2}, {0, 1, 10, 11, 20, 21, 30, 31});
  const v1::LearnedAbsolute opt = Rows(table, "offset: 2");
  EXPECT_THAT(engine.Numbers(Over(opt, 0, 2)), ElementsAre(20, 21, 30, 31));
  EXPECT_THAT(engine.Numbers(AtPositions(SpecOf(opt), {{1, -2, -1, 1}})),
              ElementsAre(30, 31, 0, 1, 10, 11, 30, 31));
  EXPECT_THAT(engine.Numbers(Over(Rows(table, "offset: -1000"), 1003, 1004)),
              ElementsAre(30, 31));
}

TEST(LearnedAbsolute, EndsWhereTheTableEnds) {
  EngineHarness engine;
  const v1::LearnedAbsolute spec =
      Rows(TableOf({4, 1}, {0, 1, 2, 3}), "offset: 2");
  for (const v1::TensorSpec& beyond :
       {Over(spec, 0, 3), Over(spec, -3, 1),
        AtPositions(SpecOf(spec), {{0, 2}}),
        AtPositions(SpecOf(spec), {{int64_t{1} << 40, 0}})}) {
    EXPECT_THAT(engine.MakePlan(beyond),
                StatusIs(absl::StatusCode::kOutOfRange,
                         HasSubstr("want them in [-2, 2), which is all that "
                                   "learned_absolute has")));
  }
}

TEST(LearnedAbsolute, HasZerosAtItsPadding) {
  EngineHarness engine;
  const Table table = TableOf({4, 2}, {-1, 1, -2, 2, 3, -3, 4, 4});
  v1::LearnedAbsolute spec = Rows(table, "offset: 1");
  for (const int64_t padding : {0, 1, 3}) {
    spec.set_padding_idx(padding);
    const std::vector<double> numbers =
        engine.Numbers(Over(spec, -1, 3, "scale: -1"));
    for (int64_t row = 0; row < 4; ++row) {
      for (int64_t column = 0; column < 2; ++column) {
        const double want = row == padding ? 0 : -table.At(row, column);
        EXPECT_TRUE(Same(numbers[row * 2 + column], want));
      }
    }
  }
}

std::vector<double> FourRowsAs(v1::Interpolation interpolation,
                               int64_t length) {
  return EngineHarness().Numbers(
      Over(Stretched(TableOf({4, 1}, {0, 1, 2, 3}), interpolation, length), 0,
           length));
}

// What torch.nn.functional.interpolate documents of mode "linear".
TEST(Interpolation, ReadsBetweenRowsAsTorchDoes) {
  EXPECT_THAT(FourRowsAs(kLinear, 8),
              ElementsAre(0, .25, .75, 1.25, 1.75, 2.25, 2.75, 3));
  EXPECT_THAT(FourRowsAs(kLinear, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(FourRowsAs(kLinear, 2), ElementsAre(.5, 2.5));
  EXPECT_THAT(FourRowsAs(kLinear, 1), ElementsAre(1.5));
  EXPECT_THAT(FourRowsAs(kLinear, 3), ElementsAre(1 / 6.0f, 1.5, 17 / 6.0f));
  EXPECT_THAT(FourRowsAs(kAlignCorners, 7),
              ElementsAre(0, .5, 1, 1.5, 2, 2.5, 3));
  EXPECT_THAT(FourRowsAs(kAlignCorners, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(FourRowsAs(kAlignCorners, 2), ElementsAre(0, 3));
  EXPECT_THAT(FourRowsAs(kAlignCorners, 1), ElementsAre(0));
}

// The element of a stretched table, over the rational numbers.
class Oracle {
 public:
  Oracle() { mpq_inits(x_, w_, a_, b_, nullptr); }
  Oracle(const Oracle&) = delete;
  Oracle& operator=(const Oracle&) = delete;
  ~Oracle() { mpq_clears(x_, w_, a_, b_, nullptr); }

  double Rounded(const v1::LearnedAbsolute& spec, int64_t row, int64_t column,
                 DataType type, double scale) {
    const Table table = TableAt(spec.table());
    const int64_t rows = table.rows();
    const int64_t length = spec.interpolated_length();
    if (spec.interpolation() == kLinear) {
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
    const double a = table.At(below, column);
    if (mpq_sgn(w_) == 0) return Product(a, type, scale);
    mpq_set_d(a_, a);
    mpq_set_d(b_, table.At(below + 1, column));
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
  double Product(double a, DataType type, double scale) {
    mpfr_set_d(value_, a, MPFR_RNDN);
    mpfr_mul_d(value_, value_, scale, MPFR_RNDN);
    return RoundedBy(value_, type);
  }

  mpq_t x_, w_, a_, b_;
  Number value_{6000};
};

void ExpectRounded(const v1::LearnedAbsolute& spec, Range rows,
                   double scale = 1) {
  EngineHarness engine;
  Oracle oracle;
  const int64_t columns = TableAt(spec.table()).columns();
  for (const DataType type : kFloatTypes) {
    const std::vector<double> numbers = engine.Numbers(
        Over(spec, rows.begin, rows.end, Typed(type) + Scaled(scale)));
    for (size_t at = 0; at < numbers.size(); ++at) {
      const int64_t row = rows.begin + static_cast<int64_t>(at) / columns;
      const double want = oracle.Rounded(
          spec, row, static_cast<int64_t>(at) % columns, type, scale);
      ASSERT_TRUE(Same(numbers[at], want))
          << NameOf(type) << " row " << row << " of "
          << spec.interpolated_length() << ": got " << numbers[at] << ", want "
          << want;
    }
  }
}

void ExpectRoundedEverywhere(const Table& table, double scale = 1) {
  for (const v1::Interpolation interpolation : {kLinear, kAlignCorners}) {
    for (const int64_t length : {1, 5, 17, 20, 39, 40, 64, 77, 1000}) {
      ExpectRounded(Stretched(table, interpolation, length), {0, length},
                    scale);
    }
    const int64_t most = int64_t{1} << 20;
    ExpectRounded(Stretched(table, interpolation, most),
                  {most / 3, most / 3 + 500}, scale);
  }
}

TEST(Interpolation, IsRoundedOnce) {
  const std::vector<double> values = Normals(20 * 3);
  ExpectRoundedEverywhere(TableOf<float>({20, 3}, values));
  ExpectRoundedEverywhere(TableOf({20, 3}, values));
  ExpectRoundedEverywhere(TableOf<float>({20, 3}, values), -0.7);
  ExpectRoundedEverywhere(TableOf({20, 3}, values), 1e-30);
}

// Small integers meet the middle between two F16 or BF16 again and again.
TEST(Interpolation, DecidesTies) {
  std::vector<double> values(20 * 3);
  std::mt19937 random(1);
  for (double& value : values) {
    value = static_cast<double>(random() % 8192) - 4096;
  }
  ExpectRoundedEverywhere(TableOf<float>({20, 3}, values));
  ExpectRoundedEverywhere(TableOf({20, 3}, values), 0.375);
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
      ExpectRounded(Stretched(TableOf({rows, 1}, values), kLinear, length),
                    {0, length}, scale);
    }
  }
}

TEST(Interpolation, EndsWithItsLength) {
  EngineHarness engine;
  v1::LearnedAbsolute spec = Stretched(TableOf({2, 1}, {0, 1}), kLinear, 9);
  spec.set_offset(1);
  EXPECT_THAT(engine.MakePlan(Over(spec, -1, 8)), IsOk());
  EXPECT_THAT(engine.MakePlan(Over(spec, -1, 9)),
              StatusIs(absl::StatusCode::kOutOfRange,
                       HasSubstr("table.positions: got positions in [-1, 9), "
                                 "want them in [-1, 8)")));
}

TEST(LearnedAbsolute, RefusesTablesThatAreNotMatrices) {
  EXPECT_THAT(RefusalOf(Rows(TableOf({2}, {0, 1}))),
              IsInvalid("learned_absolute.table: got shape [2], want [2 "
                        "positions, "));
  EXPECT_THAT(RefusalOf(Rows(TableOf({2, 1, 1}, {0, 1}))),
              IsInvalid("learned_absolute.table: got shape [2, 1, 1], want ["));
}

TEST(LearnedAbsolute, RefusesPaddingThatIsNotARow) {
  for (const std::string padding : {"-1", "2"}) {
    EXPECT_THAT(
        RefusalOf(Rows(TableOf({2, 1}, {0, 1}), "padding_idx: " + padding)),
        IsInvalid("learned_absolute.padding_idx: got " + padding +
                  ", want a row of the table, in [0, 2)"));
  }
}

}  // namespace
}  // namespace attnbias::learned_absolute_test
