// SPDX-License-Identifier: Apache-2.0
// Compares resampled tables with torch's results, and with the formula in GMP's rational
// arithmetic.
#include <gmpxx.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/mpfr_oracle.h"
#include "tests/unit/support/engine_harness.h"
#include "tests/unit/support/filled.h"

namespace attnbias::resample_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::LearnedAbsolute Resampled(const Table& table, const std::string& resample) {
  v1::LearnedAbsolute spec;
  *spec.mutable_table() = Ref(table);
  *spec.mutable_resample() = Parse<v1::Resample>(resample);
  return spec;
}

v1::TensorSpec Over(const v1::LearnedAbsolute& spec, Range rows, const std::string& output = "") {
  return OverPositions(WithOutput(spec, output), rows.begin, rows.end);
}

int64_t RowsOf(const v1::Resample& spec) {
  int64_t rows = 1;
  for (const int64_t side : spec.target()) rows *= side;
  return rows + spec.prefix_rows();
}

std::vector<double> AllOf(const std::vector<double>& values, const std::string& resample) {
  const auto rows = static_cast<int64_t>(values.size());
  const v1::LearnedAbsolute spec = Resampled(TableOf({rows, 1}, values), resample);
  return EngineHarness().Numbers(Over(spec, {0, RowsOf(spec.resample())}, Typed(DataType::kF64)));
}

TEST(Resample, LinearMatchesTorch) {
  const auto of = [](const std::string& resample) { return AllOf({0, 1, 2, 3}, resample); };
  EXPECT_THAT(of("target: 8"), ElementsAre(0, .25, .75, 1.25, 1.75, 2.25, 2.75, 3));
  EXPECT_THAT(of("target: 4"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(of("target: 2"), ElementsAre(.5, 2.5));
  EXPECT_THAT(of("target: 1"), ElementsAre(1.5));
  EXPECT_THAT(of("target: 3"), ElementsAre(1 / 6.0, 1.5, 17 / 6.0));
  EXPECT_THAT(of("target: 7 align_corners: true"), ElementsAre(0, .5, 1, 1.5, 2, 2.5, 3));
  EXPECT_THAT(of("target: 4 align_corners: true"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(of("target: 2 align_corners: true"), ElementsAre(0, 3));
  EXPECT_THAT(of("target: 1 align_corners: true"), ElementsAre(0));
  EXPECT_THAT(AllOf({0, 8, 16, 24}, "target: 6 step: 0.625"),
              ElementsAre(0, 3.5, 8.5, 13.5, 18.5, 23.5));
}

TEST(Resample, CubicMatchesTorch) {
  EXPECT_THAT(AllOf({0, 0, 64, 0, 0}, "target: 10 filter: FILTER_CUBIC"),
              ElementsAre(0, -2.25, -6.75, 16.75, 56.25, 56.25, 16.75, -6.75, -2.25, 0));
  EXPECT_THAT(AllOf({0, 0, 64, 0, 0}, "target: 9 filter: FILTER_CUBIC align_corners: true"),
              ElementsAre(0, -6, 0, 38, 64, 38, 0, -6, 0));
}

TEST(Resample, AntialiasedMatchesTorch) {
  EXPECT_THAT(AllOf({0, 0, 0, 64, 0, 0, 0, 0}, "target: 4 antialias: true"),
              ElementsAre(0, 24, 8, 0));
  EXPECT_THAT(AllOf({64, 0, 0, 0, 0, 0, 0, 0}, "target: 4 antialias: true"),
              ElementsAre(192 / 7.0, 0, 0, 0));
}

TEST(Resample, TwoAxesMatchTorch) {
  EXPECT_THAT(AllOf({0, 256, 0, 0}, "source: [2, 2] target: [4, 4]"),
              ElementsAre(0, 64, 192, 256,  //
                          0, 48, 144, 192,  //
                          0, 16, 48, 64,    //
                          0, 0, 0, 0));
  EXPECT_THAT(AllOf({0, 256, 0, 0}, "source: [2, 2] target: [4, 4] filter: FILTER_CUBIC"),
              ElementsAre(-29.84765625, 64.1171875, 218.8828125, 312.84765625, -20.8828125,
                          44.859375, 153.140625, 218.8828125, -6.1171875, 13.140625, 44.859375,
                          64.1171875, 2.84765625, -6.1171875, -20.8828125, -29.84765625));
}

TEST(Resample, PrefixRowsAreKept) {
  EXPECT_THAT(AllOf({7, -0.0, 0, 1}, "prefix_rows: 2 target: 4"),
              ElementsAre(7, 0, 0, .25, .75, 1));
}

// The definition of a resampled element, in rational arithmetic.
class Oracle {
 public:
  // Elements have `precision` bits before they are rounded to a type.
  Oracle(const v1::LearnedAbsolute& spec, int precision)
      : table_(TableAt(spec.table())), spec_(spec.resample()), value_(precision) {
    if (spec_.source().empty()) {
      spec_.add_source(table_.rows() - spec_.prefix_rows());
    }
    for (int i = 0; i < spec_.target_size(); ++i) {
      for (int64_t row = 0; row < spec_.target(i); ++row) {
        weights_[i].push_back({});
      }
    }
  }

  // Returns the element in every type.
  std::map<DataType, double> Rounded(int64_t row, int64_t column, double scale) {
    SetExact(row, column, scale);
    std::map<DataType, double> rounded;
    for (const DataType type : kFloatTypes) {
      rounded[type] = RoundedBy(value_, type);
    }
    return rounded;
  }

 private:
  using Weights = std::map<int64_t, mpq_class>;

  void SetExact(int64_t row, int64_t column, double scale) {
    if (row < spec_.prefix_rows()) return SetOwn(row, column, scale);
    row -= spec_.prefix_rows();
    const bool is_grid = spec_.target_size() == 2;
    const int64_t width = is_grid ? spec_.target(1) : 1;
    const auto& down = WeightsOf(0, row / width);
    const Weights one = {{0, mpq_class(1)}};
    const auto& across = is_grid ? WeightsOf(1, row % width) : one;
    if (down.size() == 1 && across.size() == 1) {
      return SetOwn(spec_.prefix_rows() + down.begin()->first * (is_grid ? spec_.source(1) : 1) +
                        across.begin()->first,
                    column, scale);
    }
    mpq_class sum;
    for (const auto& [i, weight] : down) {
      for (const auto& [j, other] : across) {
        const int64_t at = i * (is_grid ? spec_.source(1) : 1) + j;
        sum += weight * other * mpq_class(table_.At(spec_.prefix_rows() + at, column));
      }
    }
    sum *= mpq_class(scale);
    mpfr_set_q(value_, sum.get_mpq_t(), MPFR_RNDN);
  }

  void SetOwn(int64_t row, int64_t column, double scale) {
    mpfr_set_d(value_, table_.At(row, column), MPFR_RNDN);
    mpfr_mul_d(value_, value_, scale, MPFR_RNDN);
  }

  mpq_class Filter(mpq_class d) const {
    d = abs(d);
    if (spec_.filter() != v1::FILTER_CUBIC) {
      return d < 1 ? mpq_class(1 - d) : mpq_class(0);
    }
    const mpq_class a(spec_.has_cubic_a() ? spec_.cubic_a() : spec_.antialias() ? -0.5 : -0.75);
    if (d < 1) return (a + 2) * d * d * d - (a + 3) * d * d + 1;
    if (d < 2) return a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a;
    return mpq_class(0);
  }

  const Weights& WeightsOf(int axis, int64_t row) {
    Weights& weights = weights_[axis][row];
    if (!weights.empty()) return weights;
    const int64_t n = spec_.source(axis);
    const int64_t m = spec_.target(axis);
    mpq_class step = mpq_class(mpz_class(n), mpz_class(m));
    if (!spec_.step().empty()) step = mpq_class(spec_.step(axis));
    if (spec_.align_corners()) {
      step = m == 1 ? mpq_class(0) : mpq_class(mpz_class(n - 1), mpz_class(m - 1));
    }
    step.canonicalize();
    mpq_class x = step * row;
    if (!spec_.align_corners() || spec_.antialias()) {
      x += step / 2 - mpq_class(1, 2);
    }
    const mpq_class stretch = spec_.antialias() && step > 1 ? step : mpq_class(1);
    const int64_t reach = static_cast<int64_t>(std::ceil(2 * stretch.get_d())) + 1;
    const auto middle = static_cast<int64_t>(std::floor(x.get_d()));
    mpq_class total;
    for (int64_t j = middle - reach; j <= middle + reach; ++j) {
      if (spec_.antialias() && (j < 0 || j >= n)) continue;
      const mpq_class weight = Filter((j - x) / stretch);
      if (weight == 0) continue;
      weights[std::clamp<int64_t>(j, 0, n - 1)] += weight;
      total += weight;
    }
    for (auto& [j, weight] : weights) weight /= total;
    return weights;
  }

  const Table table_;
  v1::Resample spec_;
  std::array<std::vector<Weights>, 2> weights_;
  Number value_;
};

// Enough bits for values of similar magnitude, and for sums of any two doubles.
constexpr int kSomeBits = 1000;
constexpr int kAllBits = 9000;

void ExpectRounded(const v1::LearnedAbsolute& spec, double scale = 1, int precision = kSomeBits) {
  EngineHarness engine;
  Oracle oracle(spec, precision);
  std::map<DataType, std::vector<double>> got;
  for (const DataType type : kFloatTypes) {
    got[type] =
        engine.Numbers(Over(spec, {0, RowsOf(spec.resample())}, Typed(type) + Scaled(scale)));
  }
  const int64_t columns = TableAt(spec.table()).columns();
  for (int64_t at = 0; at < std::ssize(got[DataType::kF64]); ++at) {
    for (const auto& [type, want] : oracle.Rounded(at / columns, at % columns, scale)) {
      ASSERT_TRUE(Same(got[type][at], want))
          << NameOf(type) << " row " << at / columns << " of " << spec.resample().ShortDebugString()
          << ": got " << got[type][at] << ", want " << want;
    }
  }
}

const char* const kFilters[] = {
    "",
    "align_corners: true",
    "antialias: true",
    "align_corners: true antialias: true",
    "filter: FILTER_CUBIC",
    "filter: FILTER_CUBIC align_corners: true",
    "filter: FILTER_CUBIC antialias: true",
    "filter: FILTER_CUBIC cubic_a: -0.6 align_corners: true antialias: true",
};

// Compares twenty rows after a prefix of two, as a line and as two grids.
void ExpectRoundedEverywhere(const Table& table, double scale = 1) {
  for (const std::string filter : kFilters) {
    for (const char* sides : {"target: 1", "target: 7", "target: 20", "target: 40", "target: 77",
                              "source: [4, 5] target: [8, 10]", "source: [4, 5] target: [7, 3]",
                              "source: [2, 10] target: [1, 4]"}) {
      ExpectRounded(Resampled(table, absl::StrCat(sides, " prefix_rows: 2 ", filter)), scale);
    }
  }
  for (const std::string filter : {"", "filter: FILTER_CUBIC"}) {
    for (const char* steps : {"target: 9 step: 3.7", "target: 31 step: 0.1",
                              "source: [4, 5] target: [6, 8] step: [0.6557377049180328, 0.5]",
                              "source: [4, 5] target: [4, 2] step: [0.9, 2.2] antialias: true"}) {
      ExpectRounded(Resampled(table, absl::StrCat(steps, " prefix_rows: 2 ", filter)), scale);
    }
  }
}

TEST(Resample, IsRoundedOnce) {
  const std::vector<double> values = Normals(22 * 3);
  ExpectRoundedEverywhere(TableOf<float>({22, 3}, values));
  ExpectRoundedEverywhere(TableOf({22, 3}, values));
  ExpectRoundedEverywhere(TableOf<float>({22, 3}, values), -0.7);
  ExpectRoundedEverywhere(TableOf({22, 3}, values), 1e-30);
}

// Weighted means of small integers are often halfway between two F16 or BF16 values. If all numbers
// are the same number halfway between two F32 values, so is every mean.
TEST(Resample, DecidesTies) {
  std::vector<double> values(22 * 3);
  std::mt19937 random(1);
  for (double& value : values) {
    value = static_cast<double>(random() % 8192) - 4096;
  }
  ExpectRoundedEverywhere(TableOf<float>({22, 3}, values));
  ExpectRoundedEverywhere(TableOf({22, 3}, values), 0.375);
  std::ranges::fill(values, 1 + 0x1p-24);
  ExpectRoundedEverywhere(TableOf({22, 3}, values));
}

TEST(Resample, IsRoundedOnceAtTheEdgesOfF64) {
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
  const Table table = TableOf({rows, 1}, values);
  for (const double scale : {1.0, 1e-300, 3e300}) {
    for (const std::string filter :
         {"", "filter: FILTER_CUBIC", "filter: FILTER_CUBIC cubic_a: -1e-300"}) {
      for (const int64_t length : {2 * rows, 3 * rows + 1}) {
        ExpectRounded(Resampled(table, absl::StrCat("target: ", length, " ", filter)), scale,
                      kAllBits);
      }
      ExpectRounded(Resampled(table, absl::StrCat("source: [34, 17] target: [40, 23] ", filter)),
                    scale, kAllBits);
    }
  }
}

TEST(Resample, LongestLinesAreRoundedOnce) {
  const Table table = TableOf<float>({20, 2}, Normals(40));
  const int64_t most = int64_t{1} << 20;
  for (const std::string filter : {"", "filter: FILTER_CUBIC"}) {
    const v1::LearnedAbsolute spec = Resampled(table, absl::StrCat("target: ", most, " ", filter));
    const std::vector<double> numbers =
        EngineHarness().Numbers(Over(spec, {most / 3, most / 3 + 300}, Typed(DataType::kF64)));
    Oracle oracle(spec, kSomeBits);
    for (size_t at = 0; at < numbers.size(); ++at) {
      const int64_t row = most / 3 + static_cast<int64_t>(at) / 2;
      ASSERT_TRUE(
          Same(numbers[at], oracle.Rounded(row, static_cast<int64_t>(at) % 2, 1)[DataType::kF64]));
    }
  }
}

TEST(Resample, PositionsBeyondTargetAreOutOfRange) {
  EngineHarness engine;
  v1::LearnedAbsolute spec = Resampled(TableOf({3, 1}, {0, 1, 2}), "target: 8 prefix_rows: 1");
  spec.set_offset(1);
  EXPECT_THAT(engine.MakePlan(Over(spec, {-1, 8})), IsOk());
  EXPECT_THAT(engine.MakePlan(Over(spec, {-1, 9})),
              StatusIs(absl::StatusCode::kOutOfRange,
                       HasSubstr("table.positions: got positions in [-1, 9), "
                                 "want positions in [-1, 8)")));
}

TEST(Resample, RejectsInvalidSidesAndFieldsWithoutEffect) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "target: not set, want one or two sides"},
      {"target: [1, 2, 3]", "target: got 3 numbers, want at most 2"},
      {"target: [2, 3]", "source: got 0 sides, want 2, as many as the target has"},
      {"source: [2, 2] target: [2, 3]",
       "source: got sides 2 x 2, want sides whose product is 6, the table's number "
       "of rows without prefix_rows"},
      {"source: 6 target: 3 prefix_rows: 1",
       "source: got sides 6, want sides whose product is 5, the table's number of "
       "rows after prefix_rows"},
      {"target: 3 prefix_rows: 6", "prefix_rows: got 6, want fewer than the 6 rows of the table"},
      {"target: 3 step: [2, 2]", "step: got 2 numbers, want 1, one for each side of the target"},
      {"target: 3 cubic_a: -0.5", "cubic_a: got -0.5, want none with filter LINEAR"},
      {"target: 3 step: 2 align_corners: true",
       "step: got 1 numbers, want none: align_corners is set"},
      {"target: 4 step: 2 antialias: true", "step[0]: got 2, want at most 1.71429 with antialias"}};
  const Table table = TableOf({6, 1}, Normals(6));
  for (const auto& [resample, says] : kCases) {
    EXPECT_THAT(RefusalOf(Resampled(table, resample)),
                IsInvalid(absl::StrCat("learned_absolute.resample.", says)));
  }
  v1::LearnedAbsolute padded = Resampled(table, "target: 3");
  padded.set_padding_idx(0);
  EXPECT_THAT(RefusalOf(padded), IsInvalid("learned_absolute.padding_idx: got 0, want none: "
                                           "resample is set"));
}

TEST(Resample, RejectsMoreThan2To20Summands) {
  const Table table = TableOf<float>({1 << 12, 257}, Normals((1 << 12) * 257));
  EXPECT_THAT(RefusalOf(Resampled(table, "target: 1 antialias: true")),
              IsInvalid("learned_absolute.resample.antialias: got true, want "
                        "false: a row of the target would depend on 1052672 "
                        "numbers of the source, more than 2^20"));
  EXPECT_THAT(MakeWith(Resampled(table, "target: 1"))->domain.size(), 1);
}

EvaluatorPtr EvaluatorOfRowsOf512(int64_t columns) {
  const Table table = TableOf<float>({512, columns}, Normals(512 * columns));
  return MakeWith(Resampled(table,
                            "source: [32, 16] target: [2, 2] antialias: true "
                            "filter: FILTER_CUBIC"))
      ->prepare({DataType::kF32}, *SupportedKernelSets().front());
}

TEST(Resample, RowsAbove2To15SummandsAreNonPreemptible) {
  EXPECT_EQ(EvaluatorOfRowsOf512(64)->batch(), 1);
  EXPECT_EQ(EvaluatorOfRowsOf512(65)->batch(), kNonPreemptible);
}

TEST(Resample, StopsIfCallerCancels) {
  Caller caller;
  caller.Cancel();
  const ComputeScope scope(&caller, /*executor=*/nullptr);
  std::vector<float> row(64, 7);
  EvaluatorOfRowsOf512(64)->Fill({{0, 1}, {0, 1}}, reinterpret_cast<std::byte*>(row.data()), 0);
  EXPECT_THAT(row, Each(7));
}

// BEiT's own code resamples the table for every window, with bilinear weights.
TEST(Resample, WindowUsesTableOfAnotherWindow) {
  constexpr int64_t kHeads = 2;
  for (const bool symmetric : {false, true}) {
    const std::string more = symmetric ? "symmetric: true " : "";
    const std::vector<int64_t> from =
        symmetric ? std::vector<int64_t>{3, 2} : std::vector<int64_t>{5, 3};
    const std::vector<int64_t> to =
        symmetric ? std::vector<int64_t>{2, 4} : std::vector<int64_t>{3, 7};
    const int64_t old_rows = from[0] * from[1];
    const int64_t rows = to[0] * to[1];
    const std::vector<double> values = Normals((old_rows + 3) * kHeads);
    // The rows that the window uses, computed by learned_absolute.
    std::vector<double> stretched = EngineHarness().Numbers(
        Over(Resampled(TableOf({old_rows, kHeads}, {values.begin(), values.end() - 3 * kHeads}),
                       absl::StrCat("source: [", from[0], ", ", from[1], "] target: [", to[0], ", ",
                                    to[1], "] filter: FILTER_CUBIC")),
             {0, rows}, Typed(DataType::kF64)));
    stretched.insert(stretched.end(), values.end() - 3 * kHeads, values.end());
    auto spec = Parse<v1::GridRelative>(more + "window: [2, 4] class_token: true");
    v1::GridRelative want = spec;
    *want.mutable_table() = Ref(TableOf({rows + 3, kHeads}, stretched));
    *spec.mutable_table() = Ref(TableOf({old_rows + 3, kHeads}, values));
    *spec.mutable_resample() = Parse<v1::Resample>(
        absl::StrCat("source: [", from[0], ", ", from[1], "] filter: FILTER_CUBIC"));
    const std::string doubles = Typed(DataType::kF64);
    EXPECT_EQ(EngineHarness().Numbers(WithOutput(spec, doubles)),
              EngineHarness().Numbers(WithOutput(want, doubles)));
    // Indices refer to the window's own table, whatever table is given.
    EXPECT_EQ(IdentityOf(spec, kBuckets), IdentityOf(want, kBuckets));
    EXPECT_EQ(EngineHarness().Numbers(WithOutput(spec, kBuckets)),
              EngineHarness().Numbers(WithOutput(want, kBuckets)));
    spec.mutable_resample()->add_step(NAN);
    EXPECT_THAT(RefusalOf(spec), IsInvalid("grid_relative.resample.step[0]: got nan"));
    EXPECT_EQ(IdentityOf(spec, kBuckets), IdentityOf(want, kBuckets));
  }
}

TEST(Resample, WindowRejectsFieldsItDetermines) {
  const auto refusal = [](const std::string& resample) {
    auto spec = Parse<v1::GridRelative>("window: [2, 2]");
    *spec.mutable_table() = RandomRef({25, 2}, 5);
    *spec.mutable_resample() = Parse<v1::Resample>(resample);
    return RefusalOf(spec);
  };
  const std::string path = "grid_relative.resample.";
  EXPECT_THAT(refusal("source: [5, 5] target: [3, 3]"),
              IsInvalid(path + "target: got 2 numbers, want none: window gives "
                               "the sides"));
  EXPECT_THAT(refusal("source: [5, 5] prefix_rows: 1"),
              IsInvalid(path + "prefix_rows: got 1, want none: class_token "
                               "keeps the last rows"));
  EXPECT_THAT(refusal(""), IsInvalid(path + "source: got 0 sides, want 2, as "
                                            "many as the target has"));
  EXPECT_THAT(refusal("source: [3, 3]"),
              IsInvalid(path + "source: got sides 3 x 3, want sides whose product is 25, "
                               "the table's number of rows"));
}

}  // namespace
}  // namespace attnbias::resample_test
