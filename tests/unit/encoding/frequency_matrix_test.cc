// SPDX-License-Identifier: Apache-2.0
// Compares sinusoids of sums over axes with MPFR at 2000 bits.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/expect_rounded.h"
#include "tests/unit/encoding/sinusoidal_oracle.h"
#include "tests/unit/support/engine_harness.h"
#include "tests/unit/support/manual_executor.h"

namespace attnbias::frequency_matrix_test {
namespace {

using Spec = v1::Sinusoidal;

Spec WithMatrix(const std::string& text, const Table& matrix) {
  Spec spec = Parse<Spec>(text);
  *spec.mutable_frequency_matrix() = Ref(matrix);
  return spec;
}

// Sets `sum` to the sine or cosine of the sum over the axes. Columns are [sines | cosines].
void SetExact(const Spec& spec, const Table& matrix, const RealPositions& positions, int64_t row,
              int64_t column, mpfr_ptr sum) {
  const int64_t pairs = spec.dim() / 2;
  mpfr_set_ui(sum, 0, MPFR_RNDN);
  Number x(2000);
  for (size_t axis = 0; axis < positions.size(); ++axis) {
    SetStretched(spec.axes().empty() ? Completed(v1::Axis()) : spec.axes(static_cast<int>(axis)),
                 positions[axis][row], x);
    mpfr_mul_d(x, x, matrix.At(static_cast<int64_t>(axis), column % pairs), MPFR_RNDN);
    mpfr_add(sum, sum, x, MPFR_RNDN);
  }
  // The tolerance covers only the error of the divisions.
  if (mpfr_zero_p(sum) != 0 || mpfr_get_exp(sum) < -1500) {
    mpfr_set_ui(sum, 0, MPFR_RNDN);
  }
  column < pairs ? mpfr_sin(sum, sum, MPFR_RNDN) : mpfr_cos(sum, sum, MPFR_RNDN);
}

void ExpectRounded(const std::string& text, const Table& matrix, const RealPositions& positions,
                   double scale = 1) {
  SCOPED_TRACE(text);
  const Spec spec = WithMatrix(text + " columns: COLUMNS_SINES_COSINES", matrix);
  const Spec completed = Completed(spec);
  const auto shared = std::make_shared<const RealPositions>(positions);
  const int64_t rows = std::ssize(positions[0]);
  ExpectRowsRounded(
      rows, spec.dim(), scale,
      [&](DataType type, std::byte* out) {
        MakeWith(spec, Scaled(scale))
            ->prepare_reals({type, scale}, shared)
            ->Fill({{0, 1}, {0, rows}}, out, 0);
      },
      [&](int64_t row, int64_t column, mpfr_ptr value) {
        SetExact(completed, matrix, positions, row, column, value);
      },
      /*precision=*/2000);
}

RealPositions RandomPositions(int64_t axes, int64_t rows, uint64_t seed) {
  std::mt19937_64 random(seed);
  RealPositions positions(axes);
  for (std::vector<double>& list : positions) {
    for (int64_t row = 0; row < rows; ++row) {
      list.push_back(
          std::ldexp(static_cast<double>(random() >> 11), -13 - static_cast<int>(random() % 90)) *
          (random() % 2 == 0 ? 1 : -1));
    }
  }
  return positions;
}

TEST(FrequencyMatrix, IsCorrectlyRounded) {
  std::string axes;
  for (int64_t count = 1; count <= 4; ++count) {
    axes += " axes {}";
    for (const double scale : {1.0, -0.3}) {
      ExpectRounded("dim: 18" + axes, RandomTable({count, 9}, 5, 3),
                    RandomPositions(count, 60, count), scale);
    }
  }
  ExpectRounded(
      "dim: 12 axes {scale: 6.28 offset: -31.5 length: 64} "
      "axes {scale: -1e6 length: 1e-6} axes {eps: 0.1}",
      RandomTable({3, 6}, 1, 3), {{0, 31.5, 63, 0.25}, {0, -3, 0.5, 1e9}, {7, 0, -0.125, 2}}, 1);
  // The extremes of the values that a matrix may contain.
  ExpectRounded("dim: 8 axes {} axes {}", TableOf({2, 4}, {1e6, 1e-30, 0, -1e-30, -1e6, 0, 0, 1e6}),
                {{0x1p40, 0.1, 0x1p-149}, {-0x1p40, 0.3, 0x1p-149}});
}

// Larger terms cancel: to 0, to the smallest term, and to a fraction of it.
TEST(FrequencyMatrix, DistinguishesZeroFromSmallSums) {
  const std::string axes = "dim: 8 axes {scale: 0.3} axes {scale: 0.1} axes {}";
  const Table matrix = TableOf({3, 4}, {1, 2, 3, 1e-30,   //
                                        -3, -6, -9, 1e6,  //
                                        0, 1e-30, 0x1p-80, 0});
  // As doubles, 0.3 differs from 3 x 0.1.
  ExpectRounded(axes, matrix, {{1, 1, 7, 0}, {1, 1, 7, 0}, {0, 1, 1, 5}});
  const std::string same = "dim: 8 axes {scale: 0.3 length: 7} axes {scale: 0.3 length: 7} axes {}";
  for (const double scale : {1.0, -0.3}) {
    ExpectRounded(same, matrix, {{3, 3, 0x1p40, -4.5}, {1, 1, 0x1p40, -1.5}, {0, 1, 0, 0}}, scale);
  }
  // Exact fractions with the maximum number of bits, and lengths that differ by the minimum eps.
  const std::string most = " axes {scale: 1e6 length: 1e-6 eps: 1e-30}";
  const std::string least = " axes {scale: 1e-12 length: 1e12 eps: 1e-30}";
  const Table twice = TableOf({4, 1}, {1e6, 1e-30, -1e6, -1e-30});
  const RealPositions ends = {{1e12}, {0x1.fffffffffffffp-149}};
  ExpectRounded("dim: 2" + most + least + most + least, twice,
                {ends[0], ends[1], ends[0], ends[1]});
  ExpectRounded("dim: 2" + most + least + most + " axes {scale: 1e-12 length: 1e12}", twice,
                {ends[0], ends[1], ends[0], ends[1]});
}

TEST(FrequencyMatrix, OneAxisEqualsListOfFrequencies) {
  EngineHarness engine;
  const std::vector<double> frequencies = {1, -0.25, 3e-5};
  v1::TensorSpec listed;
  listed.mutable_sinusoidal()->set_dim(6);
  v1::TensorSpec matrix = listed;
  listed.mutable_sinusoidal()->mutable_ladder()->mutable_frequencies()->mutable_values()->Add(
      frequencies.begin(), frequencies.end());
  *matrix.mutable_sinusoidal()->mutable_frequency_matrix() = Ref(TableOf({1, 3}, frequencies));
  EXPECT_EQ(engine.Numbers(OverPositions(matrix, -7, 90)),
            engine.Numbers(OverPositions(listed, -7, 90)));
  EXPECT_EQ(engine.Plan(OverPositions(matrix, 3, 5))->fingerprint(),
            engine.Plan(AtPositions(matrix, {{3, 4}}))->fingerprint());
}

// A short request must not allocate much memory.
TEST(FrequencyMatrix, RangeIsNotExpandedToAList) {
  EngineHarness engine;
  v1::TensorSpec spec;
  *spec.mutable_sinusoidal() =
      WithMatrix("dim: 6 axes {} axes {offset: 0.5}", RandomTable({2, 3}, 7));
  const auto plan = engine.Plan(OverPositions(spec, -2, 2000));
  ASSERT_EQ(plan->window().reals->size(), 2u);
  EXPECT_TRUE(plan->window().reals->back().empty());
  std::vector<int64_t> positions(40);
  std::iota(positions.begin(), positions.end(), -2);
  EXPECT_EQ(engine.Numbers(OverPositions(spec, -2, 38)),
            engine.Numbers(AtPositions(spec, {positions, positions})));
  auto reversed = positions;
  std::ranges::reverse(reversed);
  std::vector<double> rows = engine.Numbers(AtPositions(spec, {reversed, reversed}));
  const std::vector<double> range = engine.Numbers(OverPositions(spec, -2, 38));
  for (size_t row = 0; row < 40; ++row) {
    for (size_t column = 0; column < 6; ++column) {
      EXPECT_EQ(rows[(39 - row) * 6 + column], range[row * 6 + column]);
    }
  }
}

TEST(FrequencyMatrix, RotaryUsesTheSameSums) {
  EngineHarness engine;
  const Table matrix = RandomTable({2, 3}, 7);
  auto rotary = Parse<v1::TensorSpec>(
      "rotary {head_dim: 6 layout: ROTARY_LAYOUT_COMPACT axes {} "
      "axes {scale: 2}}");
  auto sinusoidal = Parse<v1::TensorSpec>(
      "sinusoidal {dim: 6 columns: COLUMNS_COSINES_SINES axes {} "
      "axes {scale: 2}}");
  *rotary.mutable_rotary()->mutable_frequency_matrix() = Ref(matrix);
  *sinusoidal.mutable_sinusoidal()->mutable_frequency_matrix() = Ref(matrix);
  const std::vector<std::vector<int64_t>> lists = {{0, 5, -3}, {0, 1, 1000}};
  const std::vector<double> parts = engine.Numbers(AtPositions(rotary, lists));
  const std::vector<double> rows = engine.Numbers(AtPositions(sinusoidal, lists));
  ASSERT_EQ(parts.size(), rows.size());
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t pair = 0; pair < 3; ++pair) {
      EXPECT_EQ(parts[row * 3 + pair], rows[row * 6 + pair]);
      EXPECT_EQ(parts[9 + row * 3 + pair], rows[row * 6 + 3 + pair]);
    }
  }
}

TEST(FrequencyMatrix, WideRowYieldsPerPairAndStopsIfCancelled) {
  constexpr int kPairs = 2000;
  constexpr int kYields = 10;
  std::vector<double> weights(2 * kPairs, 1);
  std::fill_n(weights.begin(), kPairs, -1);
  v1::TensorSpec spec;
  *spec.mutable_sinusoidal() =
      WithMatrix("dim: 4000 axes {} axes {}", TableOf({2, kPairs}, weights));
  ManualExecutor executor;
  CountingObserver observer;
  Engine engine({}, *SupportedKernelSets().front(), &executor, &observer);
  const auto caller = std::make_shared<Caller>();
  const auto plan = *engine.MakePlan(AtPositions(spec, {{7}, {7}}), TestTables());
  PayloadPtr payload;
  engine.Get(plan, caller, [&](auto made) { payload = *std::move(made); });
  executor.RunAll();
  int yields = 0;
  executor.on_yield = [&] {
    if (++yields == kYields) caller->Cancel();
  };
  absl::Status status;
  payload->Read(0, plan->total_bytes(), [&](const auto& chunk) { status = chunk.status(); });
  executor.RunAll();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(yields, kYields);
}

TEST(BadFrequencyMatrix, IsRejectedByName) {
  const Table matrix = RandomTable({2, 3}, 7);
  const std::pair<const char*, const char*> kCases[] = {
      {"dim: 6", "sinusoidal.frequency_matrix: got 2 axes of 3 pairs, want 1 of 3"},
      {"dim: 8 axes {} axes {}", "sinusoidal.frequency_matrix: got 2 axes of 3 pairs, want 2 of 4"},
      {"dim: 7 axes {} axes {}", "sinusoidal.dim: got 7, want an even number"},
      {"dim: 6 axes {} axes {ladder {}}",
       "sinusoidal.axes[1].ladder: got a ladder, want none with frequency_matrix"},
      {"dim: 6 axes {} axes {} ladder {base: 20}", "sinusoidal.ladder: got"},
      {"dim: 6 axes {} axes {} axis_dims: [2, 4]", "sinusoidal.axis_dims: got"},
      {"dim: 6 axes {} axes {} odd: ODD_COLUMN_ZERO", "sinusoidal.odd: got"},
      {"dim: 6 axes {} axes {scale: 0}", "sinusoidal.axes[1].scale: got 0"}};
  for (const auto& [text, message] : kCases) {
    EXPECT_THAT(RefusalOf(WithMatrix(text, matrix)), IsInvalid(message)) << text;
  }
  EXPECT_THAT(RefusalOf(WithMatrix("dim: 2", TableOf({1, 1}, {2e6}))),
              IsInvalid("sinusoidal.frequency_matrix: got 2e+06 at index 0, want a "
                        "number in [-1e+06, 1e+06], 0 or of magnitude at least 1e-30"));
  const std::pair<const char*, const char*> kRotary[] = {
      {"rope_theta: 5", "rotary.rope_theta: got 5, want none with"},
      {"pair_axis: [0, 1, 0]",
       "rotary.pair_axis: got 3 numbers, want none: frequency_matrix is set"},
      {"linear {factor: 2}", "rotary.linear: got a value, want none with"},
      {"inverse_frequencies: [1, 1, 1]",
       "rotary.frequency_matrix: got a table, want none: inverse_frequencies"},
      {"angle: ANGLE_PRECISION_FLOAT32", "rotary.angle: got FLOAT32, want "}};
  for (const auto& [text, message] : kRotary) {
    auto spec = Parse<v1::Rotary>(std::string("head_dim: 6 axes {} axes {} ") + text);
    *spec.mutable_frequency_matrix() = Ref(matrix);
    EXPECT_THAT(RefusalOf(spec), IsInvalid(message)) << text;
  }
}

TEST(BadFrequencyMatrix, RejectsGridAndLongRange) {
  EngineHarness engine;
  v1::TensorSpec spec;
  *spec.mutable_sinusoidal() = WithMatrix("dim: 6 axes {} axes {}", RandomTable({2, 3}, 7));
  EXPECT_EQ(engine.MakePlan(OverGrid(spec, {2, 3})).status().message(),
            "table.grid: got 2 lengths, want the tokens' position_ids: with "
            "frequency_matrix each column depends on all axes");
  EXPECT_EQ(engine.MakePlan(OverPositions(spec, 0, 262145)).status().message(),
            "table.positions: got 262145 positions, want at most 262144 with "
            "frequency_matrix");
  *spec.mutable_sinusoidal() =
      WithMatrix("dim: 6 axes {} axes {offset: 0.1}", RandomTable({2, 3}, 7));
  EXPECT_EQ(engine.MakePlan(OverPositions(spec, 120, 140)).status().message(),
            "table.positions: got 128, want p + 0.1 (the offset) to be 0 or "
            "k 2^e with |k| at most 2^62; add the offset yourself and send the "
            "sums as position_ids");
}

}  // namespace
}  // namespace attnbias::frequency_matrix_test
