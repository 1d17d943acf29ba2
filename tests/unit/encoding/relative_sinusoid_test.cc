// SPDX-License-Identifier: Apache-2.0
// Sinusoids of relative positions: each pair has the distance that the models' own relative shift
// assigns to it, and its vector equals, bit for bit, the row for that distance in a sinusoidal
// table.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/sinusoidal_oracle.h"
#include "tests/unit/support/engine_harness.h"
#include "tests/unit/support/filled.h"

namespace attnbias::relative_sinusoid_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kSinesCosines = SinusoidLayout::kSinesCosines;
const SinusoidTable kTable = {.dim = 8, .layout = kSinesCosines};
// Marks a vector of zeros instead of a distance.
constexpr int64_t kZero = std::numeric_limits<int64_t>::max();

// Returns a spec for kTable's sinusoids in text format.
std::string Sinusoids(const std::string& fields = "") {
  return absl::StrCat("relative_sinusoidal {dim: 8 columns: COLUMNS_SINES_COSINES ", fields, "}");
}

v1::TensorSpec Spec(const std::string& text) { return Parse<v1::TensorSpec>(text); }

v1::TensorSpec EndAligned(const std::string& encoding, int64_t queries, int64_t keys) {
  return OverPairs(Spec(encoding), queries, keys, keys - queries);
}

v1::TensorSpec Dense(const v1::TensorSpec& spec) { return WithOutput(spec, kDense); }

std::vector<double> RowOf(const SinusoidTable& table, int64_t distance,
                          DataType type = DataType::kF32, double scale = 1) {
  SinusoidalOracle oracle(MessageOf(table));
  std::vector<double> row;
  for (int64_t column = 0; column < table.dim; ++column) {
    row.push_back(
        distance == kZero ? 0 : oracle.Rounded(static_cast<double>(distance), column, type, scale));
  }
  return row;
}

// Returns, for each of the answer's vectors, the distance whose row equals it.
std::vector<int64_t> Distances(const v1::TensorSpec& spec, const SinusoidTable& table) {
  const std::vector<double> numbers = EngineHarness().Numbers(spec);
  std::vector<int64_t> candidates = {kZero};
  for (int64_t d = -9; d <= 9; ++d) candidates.push_back(d);
  std::vector<int64_t> distances;
  for (size_t at = 0; at < numbers.size(); at += table.dim) {
    const std::vector<double> row(numbers.begin() + at, numbers.begin() + at + table.dim);
    for (const int64_t d : candidates) {
      if (row == RowOf(table, d)) distances.push_back(d);
    }
  }
  return distances;
}

TEST(RelativeSinusoidal, MatchesRelativeShift) {
  EXPECT_THAT(Distances(Dense(EndAligned(Sinusoids(), 3, 5)), kTable),
              ElementsAre(2, 1, 0, -1, -2,  //
                          3, 2, 1, 0, -1,   //
                          4, 3, 2, 1, 0));
  const std::string key_minus_query = Sinusoids("sign: RELATIVE_SIGN_KEY_MINUS_QUERY");
  EXPECT_THAT(Distances(Dense(EndAligned(key_minus_query, 3, 5)), kTable),
              ElementsAre(-2, -1, 0, 1, 2,   //
                          -3, -2, -1, 0, 1,  //
                          -4, -3, -2, -1, 0));
}

TEST(RelativeSinusoidal, IsZeroToTheRightIfCausal) {
  EXPECT_THAT(Distances(Dense(EndAligned(Sinusoids("causal: true"), 3, 5)), kTable),
              ElementsAre(2, 1, 0, kZero, kZero,  //
                          3, 2, 1, 0, kZero,      //
                          4, 3, 2, 1, 0));
  EXPECT_THAT(Distances(EndAligned(Sinusoids("causal: true left: 2"), 3, 5), kTable),
              ElementsAre(2, 2, 2, 1, 0, kZero, kZero));
}

TEST(RelativeSinusoidal, ClampsDistancesOnEachSide) {
  const auto of = [](const std::string& fields) {
    return Distances(EndAligned(Sinusoids(fields), 4, 5), kTable);
  };
  EXPECT_THAT(of("left: 1 right: 1"), ElementsAre(1, 1, 1, 1, 0, -1, -1, -1));
  EXPECT_THAT(of("left: 3 right: 2"), ElementsAre(3, 3, 2, 1, 0, -1, -2, -2));
  EXPECT_THAT(of("left: 2"), ElementsAre(2, 2, 2, 1, 0, -1, -2, -3));
  EXPECT_THAT(of("right: 1"), ElementsAre(4, 3, 2, 1, 0, -1, -1, -1));
  EXPECT_THAT(of("right: 2 sign: RELATIVE_SIGN_KEY_MINUS_QUERY"),
              ElementsAre(-4, -3, -2, -1, 0, 1, 2, 2));
  EXPECT_THAT(of("left: 3 right: 2 symmetric: true"), ElementsAre(3, 3, 2, 1, 0, 1, 2, 2));
}

TEST(RelativeSinusoidal, IgnoresDirectionIfSymmetric) {
  const v1::TensorSpec spec = Dense(Spec(Sinusoids("symmetric: true")));
  EXPECT_THAT(Distances(OverPairs(spec, 3, 5, 2), kTable), ElementsAre(2, 1, 0, 1, 2,  //
                                                                       3, 2, 1, 0, 1,  //
                                                                       4, 3, 2, 1, 0));
  EXPECT_THAT(Distances(OverPairs(spec, 3, 5), kTable), ElementsAre(0, 1, 2, 3, 4,  //
                                                                    1, 0, 1, 2, 3,  //
                                                                    2, 1, 0, 1, 2));
}

// The formulas from the papers, evaluated to 50 digits with mpmath.
TEST(RelativeSinusoidal, MatchesPublishedFormulas) {
  EngineHarness engine;
  const auto at_distance = [&](const char* encoding, int64_t distance) {
    return engine.Numbers(
        OverPairs(WithOutput(Spec(encoding), "data_type: DATA_TYPE_F64"), 1, 1, distance));
  };
  // sin 5, cos 5, and the same for the two lower frequencies of dim 6.
  const double s[] = {-.958924274663, .230001711665, .010771965118};
  const double c[] = {.283662185463, .973190224279, .999941980701};
  const auto near = [](double value) { return ::testing::DoubleNear(value, 5e-13); };
  EXPECT_THAT(at_distance("relative_sinusoidal {dim: 6}", 5),
              ElementsAre(near(s[0]), near(c[0]), near(s[1]), near(c[1]), near(s[2]), near(c[2])));
  EXPECT_THAT(
      at_distance("relative_sinusoidal {dim: 6 "
                  "columns: COLUMNS_SINES_COSINES}",
                  -5),
      ElementsAre(near(-s[0]), near(-s[1]), near(-s[2]), near(c[0]), near(c[1]), near(c[2])));
  EXPECT_THAT(at_distance("relative_sinusoidal {dim: 6 symmetric: true}", -5),
              ElementsAre(near(s[0]), near(c[0]), near(s[1]), near(c[1]), near(s[2]), near(c[2])));
  // sin and cos of 5 and of 5 / 400, with a zero column.
  EXPECT_THAT(at_distance("relative_sinusoidal {dim: 5 odd: ODD_COLUMN_ZERO "
                          "ladder {timescales {max: 400}} "
                          "columns: COLUMNS_SINES_COSINES}",
                          -5),
              ElementsAre(near(-s[0]), near(-.012499674482), near(c[0]), near(.999921876017), 0));
}

TEST(RelativeSinusoidal, MatchesTableRowsBitForBit) {
  EngineHarness engine;
  constexpr int64_t kLength = 150;
  for (const DataType type : kFloatTypes) {
    for (const int64_t dim : {1, 2, 5, 64, 131}) {
      for (const char* fields : {"", "columns: COLUMNS_SINES_COSINES odd: ODD_COLUMN_ZERO",
                                 "columns: COLUMNS_COSINES_SINES ladder {base: 500}"}) {
        const int64_t row = dim * SizeOf(type);
        const auto spec = [&](const std::string& encoding, const std::string& rest = "") {
          return WithOutput(
              Spec(absl::StrCat(encoding, " {dim: ", dim, " ", fields, " ", rest, "}")),
              Typed(type) + Scaled(-0.3));
        };
        const std::string table =
            engine.Whole(OverPositions(spec("sinusoidal"), 1 - kLength, kLength));
        const auto diagonals = [&](const std::string& rest = "") {
          return engine.Whole(OverPairs(spec("relative_sinusoidal", rest), kLength, kLength));
        };
        const std::string plain = diagonals();
        const std::string causal = diagonals("causal: true");
        const std::string symmetric = diagonals("symmetric: true");
        const std::string key_minus_query = diagonals("sign: RELATIVE_SIGN_KEY_MINUS_QUERY");
        for (int64_t r = 1 - kLength; r < kLength; ++r) {
          const auto row_of = [&](const std::string& bytes, int64_t position) {
            return bytes.substr((position + kLength - 1) * row, row);
          };
          ASSERT_EQ(row_of(plain, r), row_of(table, -r)) << r;
          ASSERT_EQ(row_of(key_minus_query, r), row_of(table, r)) << r;
          ASSERT_EQ(row_of(symmetric, r), row_of(table, std::abs(r))) << r;
          ASSERT_EQ(row_of(causal, r), r > 0 ? std::string(row, '\0') : row_of(table, -r));
        }
      }
    }
  }
}

void ExpectRounded(const std::string& encoding, const SinusoidTable& table, int64_t offset,
                   int64_t clamp, double scale = 1) {
  EngineHarness engine;
  for (const DataType type : kFloatTypes) {
    const std::vector<double> numbers = engine.Numbers(
        OverPairs(WithOutput(Spec(encoding), Typed(type) + Scaled(scale)), 3, 5, offset));
    for (int64_t i = 0; i < 7; ++i) {
      const int64_t distance = std::clamp(offset + 2 - i, -clamp, clamp);
      const std::vector<double> want = RowOf(table, distance, type, scale);
      for (int64_t column = 0; column < table.dim; ++column) {
        ASSERT_TRUE(Same(numbers[i * table.dim + column], want[column]))
            << NameOf(type) << " distance " << distance << " column " << column << ": got "
            << numbers[i * table.dim + column] << ", want " << want[column];
      }
    }
  }
}

TEST(RelativeSinusoidal, IsRoundedOnceFarAwayClampedAndScaled) {
  const int64_t most = (int64_t{1} << 40) - 4;
  for (const int64_t offset : {int64_t{0}, int64_t{1000003}, int64_t{-77777}, most, -most}) {
    ExpectRounded("relative_sinusoidal {dim: 10 ladder {base: 500}}", {.dim = 10, .base = 500},
                  offset, most * 2);
    ExpectRounded("relative_sinusoidal {dim: 10}", {.dim = 10}, offset, most * 2, 1.7);
    ExpectRounded("relative_sinusoidal {dim: 10 left: 2 right: 2}", {.dim = 10}, offset, 2, -1e-30);
  }
}

TEST(RelativeSinusoidal, DistancesBeyondPositionsAreOutOfRange) {
  EngineHarness engine;
  constexpr int64_t kMost = int64_t{1} << 40;
  const auto over = [](const std::string& fields, int64_t queries, int64_t keys, int64_t offset) {
    return OverPairs(Spec(absl::StrCat("relative_sinusoidal {dim: 2 ", fields, "}")), queries, keys,
                     offset);
  };
  const auto ends =
      StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("the domain of relative_sinusoidal"));
  EXPECT_THAT(engine.MakePlan(over("", 1, 1, kMost)), IsOk());
  EXPECT_THAT(
      engine.MakePlan(over("", 2, 1, kMost)),
      StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("relative positions in [-1099511627777, "
                                                        "-1099511627775), want positions in "
                                                        "[-1099511627776, 1099511627777)")));
  EXPECT_THAT(engine.MakePlan(over("", 1, 2, -kMost)), ends);
  EXPECT_THAT(engine.MakePlan(over("causal: true", 2, 1, kMost)), ends);
  EXPECT_THAT(engine.MakePlan(over("right: 7", 2, 1, kMost)), ends);
  EXPECT_THAT(engine.MakePlan(over("left: 7", 1, 2, -kMost)), ends);
  // Zero to the right, and equal for all positions beyond the farthest one on a side.
  EXPECT_THAT(engine.Numbers(over("causal: true", 1, 2, -kMost)), ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(engine.Numbers(over("left: 7", 2, 1, kMost)), engine.Numbers(over("left: 7", 2, 1, 8)));
  EXPECT_EQ(engine.Numbers(over("right: 7", 1, 2, -kMost)),
            engine.Numbers(over("right: 7", 1, 2, -100)));
}

// A sine that is 0 has no sign, regardless of the distance.
TEST(RelativeSinusoidal, FrequenciesOfAnySignAreReflected) {
  const std::vector<double> numbers = EngineHarness().Numbers(
      OverPairs(Spec("relative_sinusoidal {dim: 6 columns: COLUMNS_COSINES_SINES "
                     "ladder {frequencies {values: [0, 1, -1]}}}"),
                1, 2));
  const auto near = [](double value) { return ::testing::DoubleNear(value, 1e-7); };
  // Distances 0 and -1.
  EXPECT_THAT(numbers, ElementsAre(1, 1, 1, 0, 0, 0, 1, near(.540302305868), near(.540302305868), 0,
                                   near(-.841470984808), near(.841470984808)));
  EXPECT_FALSE(std::signbit(numbers[9]));
}

TEST(RelativeSinusoidal, RejectsInvalidFieldsByName) {
  const auto refused = [](const std::string& message) { return IsInvalidWith(message); };
  EXPECT_THAT(RefusalOf(Spec("relative_sinusoidal {dim: 4 "
                             "ladder {frequencies {values: 1}}}")),
              refused("relative_sinusoidal.ladder.frequencies: got 1 numbers, want 2"));
  EXPECT_THAT(RefusalOf(Spec(Sinusoids("symmetric: true "
                                       "sign: RELATIVE_SIGN_KEY_MINUS_QUERY"))),
              refused("relative_sinusoidal.sign: got KEY_MINUS_QUERY, want "
                      "none: symmetric is set"));
  EXPECT_THAT(RefusalOf(Spec(Sinusoids("causal: true right: 1"))),
              refused("relative_sinusoidal.right: got 1, want none: causal is "
                      "set"));
  EXPECT_THAT(
      EngineHarness().MakePlan(WithOutput(EndAligned(Sinusoids(), 3, 3), "mask {causal: true}")),
      refused("output.mask: got a mask, want none: relative_sinusoid"));
}

}  // namespace
}  // namespace attnbias::relative_sinusoid_test
