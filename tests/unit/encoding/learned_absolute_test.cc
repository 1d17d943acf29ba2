// SPDX-License-Identifier: Apache-2.0
// Learned absolute positions: the row at each position.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/mpfr_oracle.h"
#include "tests/unit/support/engine_harness.h"
#include "tests/unit/support/filled.h"

namespace attnbias::learned_absolute_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::LearnedAbsolute Rows(const Table& table, const std::string& rest = "") {
  auto spec = Parse<v1::LearnedAbsolute>(rest);
  *spec.mutable_table() = Ref(table);
  return spec;
}

v1::TensorSpec Over(const v1::LearnedAbsolute& spec, int64_t begin, int64_t end,
                    const std::string& output = "") {
  return OverPositions(WithOutput(spec, output), begin, end);
}

TEST(LearnedAbsolute, ReturnsTableRows) {
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

// OPT's embeddings start at row 2, fairseq's after their padding.
TEST(LearnedAbsolute, StartsAtItsOffset) {
  EngineHarness engine;
  const Table table = TableOf({4, 2}, {0, 1, 10, 11, 20, 21, 30, 31});
  const v1::LearnedAbsolute opt = Rows(table, "offset: 2");
  EXPECT_THAT(engine.Numbers(Over(opt, 0, 2)), ElementsAre(20, 21, 30, 31));
  EXPECT_THAT(engine.Numbers(AtPositions(SpecOf(opt), {{1, -2, -1, 1}})),
              ElementsAre(30, 31, 0, 1, 10, 11, 30, 31));
  EXPECT_THAT(engine.Numbers(Over(Rows(table, "offset: -1000"), 1003, 1004)), ElementsAre(30, 31));
}

TEST(LearnedAbsolute, PositionsBeyondTableAreOutOfRange) {
  EngineHarness engine;
  const v1::LearnedAbsolute spec = Rows(TableOf({4, 1}, {0, 1, 2, 3}), "offset: 2");
  for (const v1::TensorSpec& beyond :
       {Over(spec, 0, 3), Over(spec, -3, 1), AtPositions(SpecOf(spec), {{0, 2}}),
        AtPositions(SpecOf(spec), {{int64_t{1} << 40, 0}})}) {
    EXPECT_THAT(engine.MakePlan(beyond),
                StatusIs(absl::StatusCode::kOutOfRange,
                         HasSubstr("want positions in [-2, 2), the domain of "
                                   "learned_absolute")));
  }
}

TEST(LearnedAbsolute, PaddingRowsAreZero) {
  EngineHarness engine;
  const Table table = TableOf({4, 2}, {-1, 1, -2, 2, 3, -3, 4, 4});
  v1::LearnedAbsolute spec = Rows(table, "offset: 1");
  for (const int64_t padding : {0, 1, 3}) {
    spec.set_padding_idx(padding);
    const std::vector<double> numbers = engine.Numbers(Over(spec, -1, 3, "scale: -1"));
    for (int64_t row = 0; row < 4; ++row) {
      for (int64_t column = 0; column < 2; ++column) {
        const double want = row == padding ? 0 : -table.At(row, column);
        EXPECT_TRUE(Same(numbers[row * 2 + column], want));
      }
    }
  }
}

TEST(LearnedAbsolute, RejectsTablesThatAreNotMatrices) {
  EXPECT_THAT(RefusalOf(Rows(TableOf({2}, {0, 1}))),
              IsInvalid("learned_absolute.table: got shape [2], want [num_positions, dim] = "));
  EXPECT_THAT(RefusalOf(Rows(TableOf({2, 1, 1}, {0, 1}))),
              IsInvalid("learned_absolute.table: got shape [2, 1, 1], want ["));
}

TEST(LearnedAbsolute, RejectsPaddingThatIsNotARow) {
  for (const std::string padding : {"-1", "2"}) {
    EXPECT_THAT(RefusalOf(Rows(TableOf({2, 1}, {0, 1}), "padding_idx: " + padding)),
                IsInvalid("learned_absolute.padding_idx: got " + padding +
                          ", want a row of the table, in [0, 2)"));
  }
}

}  // namespace
}  // namespace attnbias::learned_absolute_test
