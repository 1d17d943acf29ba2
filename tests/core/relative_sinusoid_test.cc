// SPDX-License-Identifier: Apache-2.0
// Sinusoids of relative positions: which distance stands at which pair, as the
// models' own relative shift puts it, and that its vector is that distance's
// row of a sinusoidal table, to the bit.
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/sinusoidal_oracle.h"
#include "tests/testing/engine_harness.h"
#include "tests/testing/filled.h"

namespace attnbias::relative_sinusoid_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kConcatenated = v1::SINUSOIDAL_LAYOUT_CONCATENATED;
// Instead of a distance, where the vector is zero.
constexpr int64_t kZero = std::numeric_limits<int64_t>::max();

v1::TensorSpec Spec(const std::string& text) {
  return Parse<v1::TensorSpec>(text);
}

v1::TensorSpec EndAligned(const std::string& encoding, int64_t queries,
                          int64_t keys) {
  return OverPairs(Spec(encoding), queries, keys, keys - queries);
}

v1::TensorSpec Dense(const v1::TensorSpec& spec) {
  return WithOutput(spec, kDense);
}

std::vector<double> RowOf(const SinusoidTable& table, int64_t distance,
                          DataType type = DataType::kF32, double scale = 1) {
  SinusoidalOracle oracle(table);
  std::vector<double> row;
  for (int64_t column = 0; column < table.dim; ++column) {
    row.push_back(
        distance == kZero ? 0 : oracle.Rounded(distance, column, type, scale));
  }
  return row;
}

// The distance whose row stands at each of the answer's vectors.
std::vector<int64_t> Distances(const v1::TensorSpec& spec,
                               const SinusoidTable& table) {
  const std::vector<double> numbers = EngineHarness().Numbers(spec);
  std::vector<int64_t> candidates = {kZero};
  for (int64_t d = -9; d <= 9; ++d) candidates.push_back(d);
  std::vector<int64_t> distances;
  for (size_t at = 0; at < numbers.size(); at += table.dim) {
    const std::vector<double> row(numbers.begin() + at,
                                  numbers.begin() + at + table.dim);
    for (const int64_t d : candidates) {
      if (row == RowOf(table, d)) distances.push_back(d);
    }
  }
  return distances;
}

TEST(TransformerXl, HasTheDistancesOfItsRelativeShift) {
  const SinusoidTable table = {.dim = 8, .layout = kConcatenated};
  EXPECT_THAT(Distances(EndAligned("transformer_xl {dim: 8}", 1, 5), table),
              ElementsAre(4, 3, 2, 1, 0));
  EXPECT_THAT(
      Distances(EndAligned("transformer_xl {dim: 8 clamp_len: 2}", 1, 5),
                table),
      ElementsAre(2, 2, 2, 1, 0));
  EXPECT_THAT(
      Distances(Dense(EndAligned("transformer_xl {dim: 8}", 3, 5)), table),
      ElementsAre(2, 1, 0, kZero, kZero,  //
                  3, 2, 1, 0, kZero,      //
                  4, 3, 2, 1, 0));
}

TEST(Xlnet, HasTheDistancesOfItsRelativeShift) {
  const SinusoidTable table = {.dim = 8, .layout = kConcatenated};
  EXPECT_THAT(Distances(Dense(EndAligned("xlnet {dim: 8}", 3, 5)), table),
              ElementsAre(2, 1, 0, -1, -2,  //
                          3, 2, 1, 0, -1,   //
                          4, 3, 2, 1, 0));
  EXPECT_THAT(Distances(EndAligned("xlnet {dim: 8 clamp_len: 1}", 3, 5), table),
              ElementsAre(1, 1, 1, 1, 0, -1, -1));
  EXPECT_THAT(
      Distances(
          EndAligned("xlnet {dim: 8 attn_type: XLNET_ATTENTION_UNIDIRECTIONAL}",
                     3, 5),
          table),
      ElementsAre(4, 3, 2, 1, 0, kZero, kZero));
}

TEST(Conformer, HasTheDistancesOfEspnet) {
  EXPECT_THAT(
      Distances(Dense(EndAligned("conformer {dim: 8}", 4, 4)), {.dim = 8}),
      ElementsAre(0, -1, -2, -3,  //
                  1, 0, -1, -2,   //
                  2, 1, 0, -1,    //
                  3, 2, 1, 0));
}

TEST(SymmetricSinusoidal, IsBlindToDirection) {
  const v1::TensorSpec spec = Dense(Spec("symmetric_sinusoidal {dim: 8}"));
  EXPECT_THAT(Distances(OverPairs(spec, 3, 5, 2), {.dim = 8}),
              ElementsAre(2, 1, 0, 1, 2,  //
                          3, 2, 1, 0, 1,  //
                          4, 3, 2, 1, 0));
  EXPECT_THAT(Distances(OverPairs(spec, 3, 5), {.dim = 8}),
              ElementsAre(0, 1, 2, 3, 4,  //
                          1, 0, 1, 2, 3,  //
                          2, 1, 0, 1, 2));
}

// Numbers of the papers' formulas at 50 digits, from mpmath.
TEST(RelativeSinusoid, HasLiteralNumbers) {
  EngineHarness engine;
  const auto at_distance = [&](const char* encoding, int64_t distance) {
    return engine.Numbers(
        OverPairs(WithOutput(Spec(encoding), "data_type: DATA_TYPE_F64"), 1, 1,
                  distance));
  };
  // sin 5, cos 5 and of the two lower frequencies of dim 6.
  const double s[] = {-.958924274663, .230001711665, .010771965118};
  const double c[] = {.283662185463, .973190224279, .999941980701};
  const auto near = [](double value) {
    return ::testing::DoubleNear(value, 5e-13);
  };
  EXPECT_THAT(at_distance("conformer {dim: 6}", 5),
              ElementsAre(near(s[0]), near(c[0]), near(s[1]), near(c[1]),
                          near(s[2]), near(c[2])));
  EXPECT_THAT(at_distance("xlnet {dim: 6}", -5),
              ElementsAre(near(-s[0]), near(-s[1]), near(-s[2]), near(c[0]),
                          near(c[1]), near(c[2])));
  EXPECT_THAT(at_distance("symmetric_sinusoidal {dim: 6}", -5),
              ElementsAre(near(s[0]), near(c[0]), near(s[1]), near(c[1]),
                          near(s[2]), near(c[2])));
  EXPECT_THAT(at_distance("transformer_xl {dim: 6}", 5),
              ElementsAre(near(s[0]), near(s[1]), near(s[2]), near(c[0]),
                          near(c[1]), near(c[2])));
}

TEST(RelativeSinusoid, HasTheTablesRowsToTheBit) {
  EngineHarness engine;
  constexpr int64_t kLength = 150;
  for (const DataType type : kFloatTypes) {
    for (const int64_t dim : {2, 6, 64, 130}) {
      for (const double scale : {1.0, -0.3}) {
        const int64_t row = dim * SizeOf(type);
        const auto spec = [&](const std::string& encoding,
                              const std::string& rest = "") {
          return WithOutput(
              Spec(absl::StrCat(encoding, " {dim: ", dim, rest, "}")),
              Typed(type) + Scaled(scale));
        };
        const auto table = [&](const std::string& layout) {
          return engine.Whole(OverPositions(
              spec("sinusoidal", " layout: SINUSOIDAL_LAYOUT_" + layout),
              1 - kLength, kLength));
        };
        const auto diagonals = [&](const std::string& encoding) {
          return engine.Whole(OverPairs(spec(encoding), kLength, kLength));
        };
        const std::string interleaved = table("INTERLEAVED");
        const std::string concatenated = table("CONCATENATED");
        const std::string conformer = diagonals("conformer");
        const std::string xlnet = diagonals("xlnet");
        const std::string xl = diagonals("transformer_xl");
        const std::string symmetric = diagonals("symmetric_sinusoidal");
        for (int64_t r = 1 - kLength; r < kLength; ++r) {
          const auto row_of = [&](const std::string& bytes, int64_t position) {
            return bytes.substr((position + kLength - 1) * row, row);
          };
          ASSERT_EQ(row_of(conformer, r), row_of(interleaved, -r)) << r;
          ASSERT_EQ(row_of(xlnet, r), row_of(concatenated, -r)) << r;
          ASSERT_EQ(row_of(symmetric, r), row_of(interleaved, std::abs(r)));
          ASSERT_EQ(row_of(xl, r),
                    r > 0 ? std::string(row, '\0') : row_of(concatenated, -r));
        }
      }
    }
  }
}

void ExpectRounded(const std::string& encoding, const SinusoidTable& table,
                   int64_t offset, int64_t clamp, double scale = 1) {
  EngineHarness engine;
  for (const DataType type : kFloatTypes) {
    const std::vector<double> numbers = engine.Numbers(OverPairs(
        WithOutput(Spec(encoding), Typed(type) + Scaled(scale)), 3, 5, offset));
    for (int64_t i = 0; i < 7; ++i) {
      const int64_t distance = std::clamp(offset + 2 - i, -clamp, clamp);
      const std::vector<double> want = RowOf(table, distance, type, scale);
      for (int64_t column = 0; column < table.dim; ++column) {
        ASSERT_TRUE(Same(numbers[i * table.dim + column], want[column]))
            << NameOf(type) << " distance " << distance << " column " << column
            << ": got " << numbers[i * table.dim + column] << ", want "
            << want[column];
      }
    }
  }
}

TEST(RelativeSinusoid, IsRoundedOnceFarAwayClampedAndScaled) {
  const int64_t most = (int64_t{1} << 40) - 4;
  for (const int64_t offset :
       {int64_t{0}, int64_t{1000003}, int64_t{-77777}, most, -most}) {
    ExpectRounded("xlnet {dim: 10 base: 500}",
                  {.dim = 10, .base = 500, .layout = kConcatenated}, offset,
                  most * 2);
    ExpectRounded("conformer {dim: 10}", {.dim = 10}, offset, most * 2, 1.7);
    ExpectRounded("xlnet {dim: 10 clamp_len: 2}",
                  {.dim = 10, .layout = kConcatenated}, offset, 2, -1e-30);
  }
}

TEST(RelativeSinusoid, EndsWherePositionsEnd) {
  EngineHarness engine;
  constexpr int64_t kMost = int64_t{1} << 40;
  const v1::TensorSpec conformer = Spec("conformer {dim: 2}");
  const v1::TensorSpec xl = Spec("transformer_xl {dim: 2}");
  EXPECT_THAT(engine.MakePlan(OverPairs(conformer, 1, 1, kMost)), IsOk());
  EXPECT_THAT(engine.MakePlan(OverPairs(conformer, 2, 1, kMost)),
              StatusIs(absl::StatusCode::kOutOfRange,
                       HasSubstr("relative positions in [-1099511627777, "
                                 "-1099511627775), want them in "
                                 "[-1099511627776, 1099511627777)")));
  EXPECT_THAT(engine.MakePlan(OverPairs(conformer, 1, 2, -kMost)),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("conformer")));
  EXPECT_THAT(engine.MakePlan(OverPairs(xl, 2, 1, kMost)),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("has")));
  // Zero to the right, and the same for all beyond a clamp.
  EXPECT_THAT(engine.Numbers(OverPairs(xl, 1, 2, -kMost)),
              ElementsAre(0, 0, 0, 0));
  const v1::TensorSpec clamped = Spec("xlnet {dim: 2 clamp_len: 7}");
  EXPECT_EQ(engine.Numbers(OverPairs(clamped, 1, 1, kMost)),
            engine.Numbers(OverPairs(clamped, 1, 1, 7)));
  EXPECT_EQ(engine.Numbers(OverPairs(clamped, 1, 2, -kMost)),
            engine.Numbers(OverPairs(clamped, 1, 2, -100)));
}

TEST(RelativeSinusoid, DoesNotDependOnHowItIsCut) {
  for (const char* encoding :
       {"xlnet {dim: 12 clamp_len: 20}", "transformer_xl {dim: 12}",
        "symmetric_sinusoidal {dim: 12}"}) {
    const auto evaluator =
        MakeWith(Spec(encoding))
            ->prepare({DataType::kF32}, *SupportedKernelSets().front());
    const auto filled = [&](int64_t step) {
      std::vector<float> numbers(80 * 12);
      for (int64_t at = -40; at < 40; at += step) {
        auto* out = reinterpret_cast<std::byte*>(&numbers[(at + 40) * 12]);
        evaluator->Fill({{0, 1}, {at, at + step}}, out, 0);
      }
      return numbers;
    };
    EXPECT_EQ(filled(80), filled(1));
    EXPECT_EQ(filled(80), filled(16));
  }
}

TEST(RelativeSinusoid, IsRefusedByName) {
  const auto refused = [](const std::string& message) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message));
  };
  EXPECT_THAT(RefusalOf(Spec("symmetric_sinusoidal {dim: 2 "
                             "layout: SINUSOIDAL_LAYOUT_TENSOR2TENSOR}")),
              refused("symmetric_sinusoidal.layout: got TENSOR2TENSOR, want "
                      "INTERLEAVED or CONCATENATED"));
  EXPECT_THAT(EngineHarness().MakePlan(WithOutput(
                  EndAligned("xlnet {dim: 2}", 3, 3), "mask {causal: true}")),
              refused("output.mask: got a mask, want none: xlnet"));
}

}  // namespace
}  // namespace attnbias::relative_sinusoid_test
