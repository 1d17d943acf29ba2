// SPDX-License-Identifier: Apache-2.0
// TUPE: published index and reset matrices, the relative term's borders through the engine, and
// both terms compared with the documented products, rounded once by MPFR.
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/mpfr_oracle.h"
#include "tests/unit/support/engine_harness.h"
#include "tests/unit/support/filled.h"

namespace attnbias::tupe_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kHeads = 3;

v1::TensorSpec Over(const v1::Tupe& spec, int64_t queries, int64_t keys, int64_t offset = 0,
                    const std::string& output = "") {
  return OverPairs(WithOutput(spec, output), queries, keys, offset);
}

v1::Tupe Relative(bool reset) {
  v1::Tupe spec;
  *spec.mutable_relative_table() = RandomRef({reset ? 33 : 32, kHeads}, 1);
  spec.set_reset_class_token(reset);
  return spec;
}

constexpr int64_t kDim = 12;
constexpr int64_t kRows = 21;

v1::Tupe Both(bool reset) {
  v1::Tupe spec = Relative(reset);
  *spec.mutable_position_table() = RandomRef({kRows, kDim}, 2);
  *spec.mutable_query_weight() = RandomRef({kDim, kDim}, 3);
  *spec.mutable_query_bias() = RandomRef({kDim}, 4);
  *spec.mutable_key_weight() = RandomRef({kDim, kDim}, 5);
  *spec.mutable_key_bias() = RandomRef({kDim}, 6);
  *spec.mutable_norm_weight() = RandomRef({kDim}, 7);
  *spec.mutable_norm_bias() = RandomRef({kDim}, 8);
  return Completed(spec);
}

TEST(Tupe, IndexMatrixMatchesPublishedValues) {
  const auto spec = Parse<v1::Tupe>("reset_class_token: true");
  EXPECT_THAT(EngineHarness().Numbers(Over(spec, 5, 5, 0, absl::StrCat(kDense, kBuckets))),
              ElementsAre(16, 16, 16, 16, 16,  //
                          32, 0, 17, 18, 19,   //
                          32, 1, 0, 17, 18,    //
                          32, 2, 1, 0, 17,     //
                          32, 3, 2, 1, 0));
}

// The product of rows i and j is 6 i + j: the numbers 0 to 35 in a square.
TEST(Tupe, AbsoluteResetMatchesPublishedValues) {
  std::vector<double> positions;
  for (int p = 0; p < 6; ++p) {
    positions.push_back(p);
    positions.push_back(1);
  }
  auto spec = Parse<v1::Tupe>("num_heads: 1 reset_class_token: true position_scale: 1");
  *spec.mutable_position_table() = Ref(TableOf({6, 2}, positions));
  *spec.mutable_query_weight() = Ref(TableOf({2, 2}, {6, 0, 0, 1}));
  *spec.mutable_key_weight() = Ref(TableOf({2, 2}, {0, 1, 1, 0}));
  *spec.mutable_query_bias() = *spec.mutable_key_bias() = Ref(TableOf({2}, {0, 0}));
  EXPECT_THAT(EngineHarness().Numbers(Over(spec, 5, 5)), ElementsAre(0, 0, 0, 0, 0,      //
                                                                     7, 14, 15, 16, 17,  //
                                                                     7, 20, 21, 22, 23,  //
                                                                     7, 26, 27, 28, 29,  //
                                                                     7, 32, 33, 34, 35));
  spec.set_reset_class_token(false);
  EXPECT_THAT(EngineHarness().Numbers(Over(spec, 2, 3, 1)), ElementsAre(6, 7, 8, 12, 13, 14));
}

// The relative term alone, from its index matrix.
TEST(Tupe, RelativeBiasIsTableRowOfIndex) {
  for (const bool reset : {false, true}) {
    for (const int64_t offset : {-7, -2, 0, 3}) {
      const v1::Tupe spec = Relative(reset);
      const Table table = TableAt(spec.relative_table());
      EngineHarness engine;
      const v1::TensorSpec dense = Over(spec, 40, 30, offset, kDense);
      const std::vector<double> rows = engine.Numbers(WithOutput(dense, kBuckets));
      for (const DataType type : kFloatTypes) {
        const std::vector<double> got =
            engine.Numbers(WithOutput(dense, Typed(type) + "scale: 0.3"));
        ASSERT_EQ(got.size(), kHeads * rows.size());
        Number product;
        for (size_t at = 0; at < got.size(); ++at) {
          mpfr_set_d(product,
                     table.At(static_cast<int64_t>(rows[at % rows.size()]),
                              static_cast<int64_t>(at / rows.size())),
                     MPFR_RNDN);
          mpfr_mul_d(product, product, 0.3, MPFR_RNDN);
          ASSERT_TRUE(Same(got[at], RoundedBy(product, type))) << at;
        }
      }
    }
  }
  EngineHarness().ExpectSliceable(Over(Relative(true), 9, 5, -3));
}

TEST(Tupe, BorderRejectsMaskThatHidesKeys) {
  EngineHarness engine;
  const v1::TensorSpec masked = WithOutput(Over(Relative(true), 6, 6), "mask {causal: true}");
  EXPECT_THAT(engine.MakePlan(masked),
              IsInvalid("output.mask: got a mask with form TOEPLITZ, want form "
                        "DENSE: a border cannot hold a mask"));
  EXPECT_THAT(engine.MakePlan(With(masked, "pair {queries {begin: 5 end: 6}}")), IsOk());
}

// The definition in docs/numerics.md, in plain loops.
class AbsoluteOracle {
 public:
  explicit AbsoluteOracle(const v1::Tupe& spec) : spec_(spec) {
    Number scale;
    mpfr_set_si(scale, 2 * kDim / kHeads, MPFR_RNDN);
    mpfr_sqrt(scale, scale, MPFR_RNDN);
    mpfr_ui_div(scale, 1, scale, MPFR_RNDN);
    scale_ = mpfr_get_d(scale, MPFR_RNDN);
    for (int64_t row = 0; row < kRows; ++row) Project(row);
  }

  double Product(int64_t head, int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t c = head * kDim / kHeads; c < (head + 1) * kDim / kHeads; ++c) {
      sum = std::fma(queries_[i][c], keys_[j][c], sum);
    }
    return sum;
  }

 private:
  void Project(int64_t row) {
    const Table positions = TableAt(spec_.position_table());
    const Table norm_weight = TableAt(spec_.norm_weight());
    const Table norm_bias = TableAt(spec_.norm_bias());
    std::vector<double> x;
    double sum = 0;
    for (int64_t c = 0; c < kDim; ++c) {
      x.push_back(positions.At(row, c));
      sum += x.back();
    }
    double squares = 0;
    for (double& each : x) {
      each -= sum / kDim;
      squares = std::fma(each, each, squares);
    }
    for (int64_t c = 0; c < kDim; ++c) {
      const double unit = x[c] / std::sqrt(squares / kDim + spec_.norm_eps());
      x[c] = std::fma(unit, norm_weight.At(c), norm_bias.At(c));
    }
    queries_.push_back(Linear(x, spec_.query_weight(), spec_.query_bias()));
    for (double& each : queries_.back()) each *= scale_;
    keys_.push_back(Linear(x, spec_.key_weight(), spec_.key_bias()));
  }

  static std::vector<double> Linear(const std::vector<double>& x, const v1::TableRef& weight_ref,
                                    const v1::TableRef& bias_ref) {
    const Table weight = TableAt(weight_ref);
    const Table bias = TableAt(bias_ref);
    std::vector<double> out;
    for (int64_t r = 0; r < kDim; ++r) {
      double sum = bias.At(r);
      for (int64_t c = 0; c < kDim; ++c) {
        sum = std::fma(x[c], weight.At(r, c), sum);
      }
      out.push_back(sum);
    }
    return out;
  }

  const v1::Tupe& spec_;
  double scale_;
  std::vector<std::vector<double>> queries_;
  std::vector<std::vector<double>> keys_;
};

TEST(Tupe, BothTermsAreAddedAndRoundedOnceByEveryKernelSet) {
  for (const bool reset : {false, true}) {
    const v1::Tupe spec = Both(reset);
    const AbsoluteOracle oracle(spec);
    const Table table = TableAt(spec.relative_table());
    const int64_t length = reset ? kRows - 1 : kRows;
    const v1::TensorSpec indices =
        Over(Relative(reset), length, length, 0, absl::StrCat(kDense, kBuckets));
    for (const KernelSet* kernels : SupportedKernelSets()) {
      EngineHarness engine({}, *kernels);
      const std::vector<double> rows = engine.Numbers(indices);
      for (const DataType type : kFloatTypes) {
        for (const double scale : {1.0, -0.7}) {
          const std::vector<double> got =
              engine.Numbers(Over(spec, length, length, 0, Typed(type) + Scaled(scale)));
          ASSERT_EQ(got.size(), kHeads * length * length);
          Number sum;
          for (int64_t at = 0; at < kHeads * length * length; ++at) {
            const int64_t h = at / (length * length);
            int64_t i = at / length % length;
            int64_t j = at % length;
            if (reset) {
              const bool from_class = i == 0;
              const bool to_class = j == 0;
              i = from_class ? 0 : to_class ? 1 : i + 1;
              j = from_class ? 0 : to_class ? 1 : j + 1;
            }
            mpfr_set_d(sum, oracle.Product(h, i, j), MPFR_RNDN);
            mpfr_add_d(sum, sum, table.At(static_cast<int64_t>(rows[at % (length * length)]), h),
                       MPFR_RNDN);
            mpfr_mul_d(sum, sum, scale, MPFR_RNDN);
            ASSERT_TRUE(Same(got[at], RoundedBy(sum, type)))
                << kernels->name << " " << at << " " << got[at];
          }
        }
      }
    }
  }
}

TEST(Tupe, PositionsBeyondTheTableAreOutOfRange) {
  EngineHarness engine;
  for (const bool reset : {false, true}) {
    const int64_t length = reset ? kRows - 1 : kRows;
    EXPECT_THAT(engine.MakePlan(Over(Both(reset), length, length)), IsOk());
    EXPECT_THAT(engine.MakePlan(Over(Both(reset), 1, length + 1, 0)),
                StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("pair.key_length: got")));
    EXPECT_THAT(engine.MakePlan(Over(Both(reset), 1, 1, -1)),
                StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("pair.query_offset: got")));
  }
}

TEST(Tupe, ConstantPositionsAreFinite) {
  v1::Tupe spec = Both(false);
  *spec.mutable_position_table() =
      Ref(TableOf({kRows, kDim}, std::vector<double>(kRows * kDim, 2)));
  for (const double number : EngineHarness().Numbers(Over(spec, 3, 3))) {
    EXPECT_TRUE(std::isfinite(number));
  }
}

TEST(Tupe, RejectsMismatchedTerms) {
  const auto refusal = [](const std::string& fields, const auto&... tables) {
    return RefusalOf(Changed(Both(true), fields, {tables...}));
  };
  using T = std::pair<std::string, std::vector<int64_t>>;
  EXPECT_THAT(refusal("num_heads: 4"), IsInvalid("tupe.relative_table: got shape [33, 3], want "
                                                 "[num_buckets + reset_class_token, "
                                                 "num_heads] = [33, 4]"));
  EXPECT_THAT(refusal("", T("relative_table", {32, 3})),
              IsInvalid("tupe.relative_table: got shape [32, 3], want "
                        "[num_buckets + reset_class_token, num_heads] = [33, 3]"));
  EXPECT_THAT(refusal("num_heads: 5", T("relative_table", {33, 5})),
              IsInvalid("tupe.num_heads: got 5, want a divisor of "
                        "position_table's columns, 12"));
  EXPECT_THAT(refusal("num_buckets: 31", T("relative_table", {32, 3})),
              IsInvalid("tupe.num_buckets: got 31, want an even number"));
  EXPECT_THAT(refusal("max_distance: 8"), IsInvalid("tupe.max_distance: got 8"));
  EXPECT_THAT(refusal("", T("query_weight", {})),
              IsInvalid("tupe.query_weight: not set, want a table"));
  EXPECT_THAT(refusal("", T("position_table", {})), IsInvalid("tupe.query_weight: got a table, "
                                                              "want none without position_table"));
  EXPECT_THAT(refusal("", T("norm_bias", {})), IsInvalid("tupe.norm_bias: not set, want a table"));
  EXPECT_THAT(refusal("", T("key_weight", {12, 11})),
              IsInvalid("tupe.key_weight: got shape [12, 11], want "
                        "[d_model, d_model] = [12, 12]"));
  EXPECT_THAT(refusal("", T("position_table", {1, 12})),
              IsInvalid("tupe.position_table: got 1 rows of 12 columns, want at least "
                        "2"));
  v1::Tupe large = Both(true);
  *large.mutable_key_bias() = Ref(TableOf({kDim}, std::vector<double>(kDim, 1e39)));
  EXPECT_THAT(RefusalOf(large), IsInvalid("tupe.key_bias: got 1e+39 at index 0, want a number in"));
  EXPECT_THAT(refusal("position_scale: nan"), IsInvalid("tupe.position_scale: got nan"));
  EXPECT_THAT(RefusalOf(Parse<v1::Tupe>("num_heads: 3")),
              IsInvalid("tupe.relative_table: not set, want relative_table, "
                        "position_table"));
  EXPECT_THAT(RefusalOf(Parse<v1::Tupe>("num_heads: 3 position_scale: 2")),
              IsInvalid("tupe.position_scale: got 2, want none without position_table"));
  EXPECT_THAT(RefusalOf(Both(true), kBuckets), IsInvalid("output.values: got BUCKETS, want BIAS"));
}

TEST(Tupe, RejectsBucketsWithoutRelativeTerm) {
  v1::Tupe spec = Both(false);
  spec.clear_relative_table();
  spec.set_num_buckets(64);
  EXPECT_THAT(RefusalOf(spec), IsInvalid("tupe.num_buckets: got 64, want none"));
}

}  // namespace
}  // namespace attnbias::tupe_test
