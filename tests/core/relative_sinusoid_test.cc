// SPDX-License-Identifier: Apache-2.0
// Sinusoids of relative positions: which distance stands at which pair, as the
// models' own relative shift puts it, and that its vector is that distance's
// row of a sinusoidal table, to the bit.
#include "core/encoding/spec/relative_sinusoid.h"

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/encoding/make_encoding.h"
#include "core/encoding/spec/sinusoidal.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/sinusoidal_oracle.h"
#include "tests/testing/engine_harness.h"

namespace attnbias::relative_sinusoid_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kConcatenated = SinusoidalLayout::kConcatenated;
constexpr auto kInterleaved = SinusoidalLayout::kInterleaved;
constexpr auto kUnidirectional = XlnetAttention::kUnidirectional;
// Instead of a distance, where the vector is zero.
constexpr int64_t kZero = std::numeric_limits<int64_t>::max();

PairExtent EndAligned(int64_t queries, int64_t keys) {
  return PairOf(queries, keys, keys - queries);
}

std::vector<double> RowOf(const SinusoidalSpec& table, int64_t distance,
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
std::vector<int64_t> Distances(const EncodingSpec& encoding,
                               const SinusoidalSpec& table,
                               const PairExtent& pair,
                               std::optional<Form> form = Form::kDense) {
  EngineHarness engine;
  const std::vector<double> numbers =
      engine.Numbers({encoding, pair, {.form = form}});
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
  const SinusoidalSpec table = {.dim = 8, .layout = kConcatenated};
  const TransformerXlSpec spec = {.dim = 8};
  EXPECT_THAT(Distances(spec, table, EndAligned(1, 5), {}),
              ElementsAre(4, 3, 2, 1, 0));
  EXPECT_THAT(Distances({TransformerXlSpec{.dim = 8, .clamp_len = 2}}, table,
                        EndAligned(1, 5), {}),
              ElementsAre(2, 2, 2, 1, 0));
  EXPECT_THAT(Distances(spec, table, EndAligned(3, 5)),
              ElementsAre(2, 1, 0, kZero, kZero,  //
                          3, 2, 1, 0, kZero,      //
                          4, 3, 2, 1, 0));
}

TEST(Xlnet, HasTheDistancesOfItsRelativeShift) {
  const SinusoidalSpec table = {.dim = 8, .layout = kConcatenated};
  EXPECT_THAT(Distances({XlnetSpec{.dim = 8}}, table, EndAligned(3, 5)),
              ElementsAre(2, 1, 0, -1, -2,  //
                          3, 2, 1, 0, -1,   //
                          4, 3, 2, 1, 0));
  EXPECT_THAT(Distances({XlnetSpec{.dim = 8, .clamp_len = 1}}, table,
                        EndAligned(3, 5), {}),
              ElementsAre(1, 1, 1, 1, 0, -1, -1));
  EXPECT_THAT(Distances({XlnetSpec{.dim = 8, .attn_type = kUnidirectional}},
                        table, EndAligned(3, 5), {}),
              ElementsAre(4, 3, 2, 1, 0, kZero, kZero));
}

TEST(Conformer, HasTheDistancesOfEspnet) {
  EXPECT_THAT(Distances({ConformerSpec{.dim = 8}}, {.dim = 8}, PairOf(4, 4, 0)),
              ElementsAre(0, -1, -2, -3,  //
                          1, 0, -1, -2,   //
                          2, 1, 0, -1,    //
                          3, 2, 1, 0));
}

TEST(SymmetricSinusoidal, IsBlindToDirection) {
  const SymmetricSinusoidalSpec spec = {.dim = 8};
  EXPECT_THAT(Distances(spec, {.dim = 8}, EndAligned(3, 5)),
              ElementsAre(2, 1, 0, 1, 2,  //
                          3, 2, 1, 0, 1,  //
                          4, 3, 2, 1, 0));
  EXPECT_THAT(Distances(spec, {.dim = 8}, PairOf(3, 5, 0)),
              ElementsAre(0, 1, 2, 3, 4,  //
                          1, 0, 1, 2, 3,  //
                          2, 1, 0, 1, 2));
}

// Numbers of the papers' formulas at 50 digits, from mpmath.
TEST(RelativeSinusoid, HasLiteralNumbers) {
  EngineHarness engine;
  const Output output = {.data_type = DataType::kF64};
  const auto at_distance = [&](const EncodingSpec& encoding, int64_t distance) {
    return engine.Numbers({encoding, PairOf(1, 1, distance), output});
  };
  // sin 5, cos 5 and of the two lower frequencies of dim 6.
  const double s[] = {-.958924274663, .230001711665, .010771965118};
  const double c[] = {.283662185463, .973190224279, .999941980701};
  const auto near = [](double value) {
    return ::testing::DoubleNear(value, 5e-13);
  };
  EXPECT_THAT(at_distance(ConformerSpec{.dim = 6}, 5),
              ElementsAre(near(s[0]), near(c[0]), near(s[1]), near(c[1]),
                          near(s[2]), near(c[2])));
  EXPECT_THAT(at_distance(XlnetSpec{.dim = 6}, -5),
              ElementsAre(near(-s[0]), near(-s[1]), near(-s[2]), near(c[0]),
                          near(c[1]), near(c[2])));
  EXPECT_THAT(at_distance(SymmetricSinusoidalSpec{.dim = 6}, -5),
              ElementsAre(near(s[0]), near(c[0]), near(s[1]), near(c[1]),
                          near(s[2]), near(c[2])));
  EXPECT_THAT(at_distance(TransformerXlSpec{.dim = 6}, 5),
              ElementsAre(near(s[0]), near(s[1]), near(s[2]), near(c[0]),
                          near(c[1]), near(c[2])));
}

TEST(RelativeSinusoid, HasTheTablesRowsToTheBit) {
  EngineHarness engine;
  constexpr int64_t kLength = 150;
  for (const DataType type : kFloatTypes) {
    for (const int64_t dim : {2, 6, 64, 130}) {
      for (const double scale : {1.0, -0.3}) {
        const Output output = {.data_type = type, .scale = scale};
        const int64_t row = dim * SizeOf(type);
        const auto table = [&](SinusoidalLayout layout) {
          return engine.Whole(
              {SinusoidalSpec{.dim = dim, .layout = layout},
               TableExtent{.positions = Range{-kLength + 1, kLength}}, output});
        };
        const auto diagonals = [&](const EncodingSpec& encoding) {
          return engine.Whole({encoding, PairOf(kLength, kLength, 0), output});
        };
        const std::string interleaved = table(kInterleaved);
        const std::string concatenated = table(kConcatenated);
        const std::string conformer = diagonals(ConformerSpec{.dim = dim});
        const std::string xlnet = diagonals(XlnetSpec{.dim = dim});
        const std::string xl = diagonals(TransformerXlSpec{.dim = dim});
        const std::string symmetric =
            diagonals(SymmetricSinusoidalSpec{.dim = dim});
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

void ExpectRounded(const EncodingSpec& encoding, const SinusoidalSpec& table,
                   int64_t offset, int64_t clamp, double scale = 1) {
  EngineHarness engine;
  for (const DataType type : kFloatTypes) {
    const std::vector<double> numbers = engine.Numbers(
        {encoding, PairOf(3, 5, offset), {.data_type = type, .scale = scale}});
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
    const SinusoidalSpec odd_base = {
        .dim = 10, .base = 500, .layout = kConcatenated};
    ExpectRounded(XlnetSpec{.dim = 10, .base = 500}, odd_base, offset,
                  most * 2);
    ExpectRounded(ConformerSpec{.dim = 10}, {.dim = 10}, offset, most * 2, 1.7);
    ExpectRounded(XlnetSpec{.dim = 10, .clamp_len = 2},
                  {.dim = 10, .layout = kConcatenated}, offset, 2, -1e-30);
  }
}

TEST(RelativeSinusoid, EndsWherePositionsEnd) {
  EngineHarness engine;
  constexpr int64_t kMost = int64_t{1} << 40;
  const auto status = [&](const EncodingSpec& encoding,
                          const PairExtent& pair) {
    return engine.MakePlan({encoding, pair, {}});
  };
  EXPECT_THAT(status(ConformerSpec{.dim = 2}, PairOf(1, 1, kMost)), IsOk());
  EXPECT_THAT(status(ConformerSpec{.dim = 2}, PairOf(2, 1, kMost)),
              StatusIs(absl::StatusCode::kOutOfRange,
                       HasSubstr("relative positions in [-1099511627777, "
                                 "-1099511627775), want them in "
                                 "[-1099511627776, 1099511627777)")));
  EXPECT_THAT(status(ConformerSpec{.dim = 2}, PairOf(1, 2, -kMost)),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("conformer")));
  EXPECT_THAT(status(TransformerXlSpec{.dim = 2}, PairOf(2, 1, kMost)),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("has")));
  // Zero to the right, and the same for all beyond a clamp.
  EXPECT_THAT(
      engine.Numbers({TransformerXlSpec{.dim = 2}, PairOf(1, 2, -kMost), {}}),
      ElementsAre(0, 0, 0, 0));
  const XlnetSpec clamped = {.dim = 2, .clamp_len = 7};
  EXPECT_EQ(engine.Numbers({clamped, PairOf(1, 1, kMost), {}}),
            engine.Numbers({clamped, PairOf(1, 1, 7), {}}));
  EXPECT_EQ(engine.Numbers({clamped, PairOf(1, 2, -kMost), {}}),
            engine.Numbers({clamped, PairOf(1, 2, -100), {}}));
}

TEST(RelativeSinusoid, DoesNotDependOnHowItIsCut) {
  for (const EncodingSpec& spec :
       {EncodingSpec(XlnetSpec{.dim = 12, .clamp_len = 20}),
        EncodingSpec(TransformerXlSpec{.dim = 12}),
        EncodingSpec(SymmetricSinusoidalSpec{.dim = 12})}) {
    const EncodingPtr encoding = *MakeEncoding(spec, Output());
    const auto evaluator =
        encoding->prepare({DataType::kF32}, *SupportedKernelSets().front());
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

struct BadSpec {
  const char* name;
  EncodingSpec spec;
  Output output;
  const char* message;
};

class BadRelativeSinusoid : public ::testing::TestWithParam<BadSpec> {};

TEST_P(BadRelativeSinusoid, IsRefusedByName) {
  EXPECT_THAT(EngineHarness().MakePlan(
                  {GetParam().spec, PairOf(3, 3, 0), GetParam().output}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadRelativeSinusoid,
    ::testing::Values(
        BadSpec{
            "NoDim",
            TransformerXlSpec{},
            {},
            "transformer_xl.dim: not set, want an even integer in [2, 65536]"},
        BadSpec{"OddDim", XlnetSpec{.dim = 7}, {}, "xlnet.dim: got 7, want an"},
        BadSpec{"HugeDim",
                ConformerSpec{.dim = 65538},
                {},
                "conformer.dim: got 65538, want an even integer"},
        BadSpec{"NegativeDim",
                SymmetricSinusoidalSpec{.dim = -2},
                {},
                "symmetric_sinusoidal.dim: got -2"},
        BadSpec{"SmallBase",
                TransformerXlSpec{.dim = 2, .base = 0.5},
                {},
                "transformer_xl.base: got 0.5, want a number in [1, 1e+18]"},
        BadSpec{"BaseNan",
                XlnetSpec{.dim = 2, .base = NAN},
                {},
                "xlnet.base: got nan"},
        BadSpec{
            "ClampZero",
            TransformerXlSpec{.dim = 2, .clamp_len = 0},
            {},
            "transformer_xl.clamp_len: got 0, want an integer in [1, 2^40]"},
        BadSpec{"ClampHuge",
                XlnetSpec{.dim = 2, .clamp_len = (int64_t{1} << 40) + 1},
                {},
                "xlnet.clamp_len: got 1099511627777"},
        BadSpec{"Layout",
                SymmetricSinusoidalSpec{
                    .dim = 2, .layout = SinusoidalLayout::kTensor2Tensor},
                {},
                "symmetric_sinusoidal.layout: got TENSOR2TENSOR, want "
                "INTERLEAVED or CONCATENATED"},
        BadSpec{"Buckets",
                ConformerSpec{.dim = 2},
                {.values = Values::kBuckets},
                "output.values: got BUCKETS, want BIAS: conformer has no"},
        BadSpec{"ScaleZero",
                ConformerSpec{.dim = 2},
                {.scale = 0},
                "output.scale: got 0"},
        BadSpec{"Mask",
                XlnetSpec{.dim = 2},
                {.mask = Mask{.causal = true}},
                "output.mask: got a mask, want none: xlnet"},
        BadSpec{"Integers",
                XlnetSpec{.dim = 2},
                {.data_type = DataType::kI32},
                "output.data_type: got I32"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(RelativeSinusoid, IsNamedByEveryField) {
  EngineHarness engine;
  const std::vector<TensorSpec> specs = {
      {TransformerXlSpec{.dim = 2}, PairOf(2, 2, 0), {}},
      {TransformerXlSpec{.dim = 4}, PairOf(2, 2, 0), {}},
      {TransformerXlSpec{.dim = 2, .base = 9}, PairOf(2, 2, 0), {}},
      {TransformerXlSpec{.dim = 2, .clamp_len = 1}, PairOf(2, 2, 0), {}},
      {TransformerXlSpec{.dim = 2}, PairOf(2, 2, 0), {.scale = 2}},
      {XlnetSpec{.dim = 2}, PairOf(2, 2, 0), {}},
      {XlnetSpec{.dim = 2, .clamp_len = 1}, PairOf(2, 2, 0), {}},
      {XlnetSpec{.dim = 2, .attn_type = kUnidirectional}, PairOf(2, 2, 0), {}},
      {ConformerSpec{.dim = 2}, PairOf(2, 2, 0), {}},
      {ConformerSpec{.dim = 2, .base = 9}, PairOf(2, 2, 0), {}},
      {SymmetricSinusoidalSpec{.dim = 2}, PairOf(2, 2, 0), {}},
      {SymmetricSinusoidalSpec{.dim = 2, .layout = kConcatenated},
       PairOf(2, 2, 0),
       {}}};
  std::set<std::string> names;
  for (const TensorSpec& spec : specs) {
    names.insert(engine.Plan(spec)->encoding_fingerprint());
  }
  EXPECT_EQ(names.size(), specs.size());
}

}  // namespace
}  // namespace attnbias::relative_sinusoid_test
