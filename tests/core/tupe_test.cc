// SPDX-License-Identifier: Apache-2.0
// TUPE: published index and reset matrices, the relative term's borders through
// the engine, and both terms against the stated products and MPFR's one
// rounding.
#include "core/encoding/spec/tupe.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/encoding/make_encoding.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/mpfr_oracle.h"
#include "tests/testing/engine_harness.h"
#include "tests/testing/status_matchers.h"

namespace attnbias::tupe_test {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int64_t kHeads = 3;

Table TableOf(std::vector<int64_t> shape, const std::vector<float>& values) {
  return *Table::Create(
      DataType::kF32, shape,
      {reinterpret_cast<const char*>(values.data()), values.size() * 4},
      TableLayout::kBucketsHeads);
}

PairExtent Pair(int64_t queries, int64_t keys, int64_t offset = 0) {
  PairExtent pair;
  pair.query_length = queries;
  pair.key_length = keys;
  pair.query_offset = offset;
  return pair;
}

TensorSpec Dense(TupeSpec spec, PairExtent pair) {
  return {std::move(spec), std::move(pair), {.form = Form::kDense}};
}

TupeSpec Relative(bool reset) {
  return {.num_heads = kHeads,
          .relative_table = RandomTable({reset ? 33 : 32, kHeads}, 1),
          .reset_class_token = reset};
}

constexpr int64_t kDim = 12;
constexpr int64_t kRows = 21;

TupeSpec Both(bool reset) {
  TupeSpec spec = Relative(reset);
  spec.position_table = RandomTable({kRows, kDim}, 2);
  spec.query_weight = RandomTable({kDim, kDim}, 3);
  spec.query_bias = RandomTable({kDim}, 4);
  spec.key_weight = RandomTable({kDim, kDim}, 5);
  spec.key_bias = RandomTable({kDim}, 6);
  spec.norm_weight = RandomTable({kDim}, 7);
  spec.norm_bias = RandomTable({kDim}, 8);
  return spec;
}

TEST(Tupe, IndexMatrixIsThePublishedOne) {
  TensorSpec spec = Dense({.reset_class_token = true}, Pair(5, 5));
  spec.output.values = Values::kBuckets;
  EXPECT_THAT(EngineHarness().Numbers(spec), ElementsAre(16, 16, 16, 16, 16,  //
                                                         32, 0, 17, 18, 19,   //
                                                         32, 1, 0, 17, 18,    //
                                                         32, 2, 1, 0, 17,     //
                                                         32, 3, 2, 1, 0));
}

// Products of rows i and j that are 6 i + j: the numbers 0 to 35 in a square.
TEST(Tupe, AbsoluteResetIsThePublishedOne) {
  std::vector<float> positions;
  for (int p = 0; p < 6; ++p) {
    positions.push_back(static_cast<float>(p));
    positions.push_back(1);
  }
  const TupeSpec spec{.num_heads = 1,
                      .position_table = TableOf({6, 2}, positions),
                      .query_weight = TableOf({2, 2}, {6, 0, 0, 1}),
                      .query_bias = TableOf({2}, {0, 0}),
                      .key_weight = TableOf({2, 2}, {0, 1, 1, 0}),
                      .key_bias = TableOf({2}, {0, 0}),
                      .reset_class_token = true,
                      .position_scale = 1};
  EXPECT_THAT(EngineHarness().Numbers({spec, Pair(5, 5), {}}),
              ElementsAre(0, 0, 0, 0, 0,      //
                          7, 14, 15, 16, 17,  //
                          7, 20, 21, 22, 23,  //
                          7, 26, 27, 28, 29,  //
                          7, 32, 33, 34, 35));
  TupeSpec plain = spec;
  plain.reset_class_token = false;
  EXPECT_THAT(EngineHarness().Numbers({plain, Pair(2, 3, 1), {}}),
              ElementsAre(6, 7, 8, 12, 13, 14));
}

// The relative term alone, from its matrix of indices.
TEST(Tupe, RelativeBiasIsTheTablesRowOfTheIndex) {
  for (const bool reset : {false, true}) {
    for (const int64_t offset : {-7, -2, 0, 3}) {
      const TupeSpec spec = Relative(reset);
      TensorSpec indices = Dense(spec, Pair(40, 30, offset));
      indices.output.values = Values::kBuckets;
      EngineHarness engine;
      const std::vector<double> rows = engine.Numbers(indices);
      for (const DataType type : kFloatTypes) {
        TensorSpec dense = Dense(spec, Pair(40, 30, offset));
        dense.output.data_type = type;
        dense.output.scale = 0.3;
        const std::vector<double> got = engine.Numbers(dense);
        ASSERT_EQ(got.size(), kHeads * rows.size());
        Number product;
        for (size_t at = 0; at < got.size(); ++at) {
          mpfr_set_d(product,
                     spec.relative_table->At(
                         static_cast<int64_t>(rows[at % rows.size()]),
                         static_cast<int64_t>(at / rows.size())),
                     MPFR_RNDN);
          mpfr_mul_d(product, product, 0.3, MPFR_RNDN);
          ASSERT_TRUE(Same(got[at], RoundedBy(product, type))) << at;
        }
      }
    }
  }
}

TEST(Tupe, CompactFormIsDiagonalsAndABorder) {
  EngineHarness engine;
  for (const auto& [queries, keys, offset] :
       {std::tuple(5, 9, 0), std::tuple(9, 5, -3), std::tuple(4, 4, 2)}) {
    const TensorSpec spec{Relative(true), Pair(queries, keys, offset), {}};
    const PlanPtr plan = engine.Plan(spec);
    ASSERT_EQ(plan->parts().size(), 2);
    EXPECT_EQ(plan->parts()[0].form, Form::kToeplitz);
    EXPECT_EQ(plan->parts()[1].name, "border");
    EXPECT_THAT(plan->parts()[1].shape, ElementsAre(kHeads, 3));
    const std::vector<double> compact = engine.Numbers(spec);
    const int64_t diagonals = queries + keys - 1;
    std::vector<double> want;
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t i = 0; i < queries; ++i) {
        for (int64_t j = 0; j < keys; ++j) {
          const int64_t position = i + offset;
          const double* border = &compact[kHeads * diagonals + 3 * h];
          double number = compact[h * diagonals + j - i + queries - 1];
          if (position == 0) number = border[j == 0 ? 2 : 0];
          if (position != 0 && j == 0) number = border[1];
          want.push_back(number);
        }
      }
    }
    EXPECT_THAT(
        engine.Numbers(Dense(Relative(true), Pair(queries, keys, offset))),
        ElementsAreArray(want));
    engine.ExpectSliceable(spec);
  }
  EXPECT_EQ(engine.Plan({Relative(false), Pair(5, 5), {}})->parts().size(), 1);
}

TEST(Tupe, MasksCoverTheBorder) {
  EngineHarness engine;
  TensorSpec spec = Dense(Relative(true), Pair(6, 6));
  const std::vector<double> plain = engine.Numbers(spec);
  spec.output.mask = Mask{.causal = true, .fill = -5.0};
  const std::vector<double> masked = engine.Numbers(spec);
  for (size_t at = 0; at < plain.size(); ++at) {
    const bool hidden = at % 6 > at / 6 % 6;
    ASSERT_EQ(masked[at], hidden ? -5.0 : plain[at]) << at;
  }
  spec.output.form.reset();
  EXPECT_THAT(engine.MakePlan(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "output.mask: got a mask with form TOEPLITZ, want form "
                       "DENSE: a border cannot hold a mask"));
  std::get<PairExtent>(spec.extent).queries = {5, 6};
  EXPECT_THAT(engine.MakePlan(spec), IsOk());
}

// What docs/numerics.md says, in plain loops.
class AbsoluteOracle {
 public:
  explicit AbsoluteOracle(const TupeSpec& spec) : spec_(spec) {
    Number scale;
    mpfr_set_si(scale, 2 * kDim / kHeads, MPFR_RNDN);
    mpfr_sqrt(scale, scale, MPFR_RNDN);
    mpfr_ui_div(scale, 1, scale, MPFR_RNDN);
    scale_ = mpfr_get_d(scale, MPFR_RNDN);
    for (int64_t row = 0; row < kRows; ++row) Project(row);
  }

  double Product(int64_t head, int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t c = head * kDim / kHeads; c < (head + 1) * kDim / kHeads;
         ++c) {
      sum = std::fma(queries_[i][c], keys_[j][c], sum);
    }
    return sum;
  }

 private:
  void Project(int64_t row) {
    std::vector<double> x;
    double sum = 0;
    for (int64_t c = 0; c < kDim; ++c) {
      x.push_back(spec_.position_table->At(row, c));
      sum += x.back();
    }
    double squares = 0;
    for (double& each : x) {
      each -= sum / kDim;
      squares = std::fma(each, each, squares);
    }
    for (int64_t c = 0; c < kDim; ++c) {
      const double unit = x[c] / std::sqrt(squares / kDim + spec_.norm_eps);
      x[c] = std::fma(unit, spec_.norm_weight->At(c), spec_.norm_bias->At(c));
    }
    queries_.push_back(Linear(x, *spec_.query_weight, *spec_.query_bias));
    for (double& each : queries_.back()) each *= scale_;
    keys_.push_back(Linear(x, *spec_.key_weight, *spec_.key_bias));
  }

  static std::vector<double> Linear(const std::vector<double>& x,
                                    const Table& weight, const Table& bias) {
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

  const TupeSpec& spec_;
  double scale_;
  std::vector<std::vector<double>> queries_;
  std::vector<std::vector<double>> keys_;
};

TEST(Tupe, BothTermsAreAddedAndRoundedOnceByEveryKernelSet) {
  for (const bool reset : {false, true}) {
    const TupeSpec spec = Both(reset);
    const AbsoluteOracle oracle(spec);
    const int64_t length = reset ? kRows - 1 : kRows;
    TensorSpec indices = Dense(Relative(reset), Pair(length, length));
    indices.output.values = Values::kBuckets;
    for (const KernelSet* kernels : SupportedKernelSets()) {
      EngineHarness engine({}, *kernels);
      const std::vector<double> rows = engine.Numbers(indices);
      for (const DataType type : kFloatTypes) {
        for (const double scale : {1.0, -0.7}) {
          const std::vector<double> got =
              engine.Numbers({spec,
                              Pair(length, length),
                              {.data_type = type, .scale = scale}});
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
            mpfr_add_d(
                sum, sum,
                spec.relative_table->At(
                    static_cast<int64_t>(rows[at % (length * length)]), h),
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

TEST(Tupe, WindowsListsAndReadsAreSlicesOfTheWhole) {
  EngineHarness engine;
  const TupeSpec spec = Both(true);
  const std::vector<double> whole = engine.Numbers({spec, Pair(20, 20), {}});
  PairExtent window = Pair(20, 20);
  window.queries = Range{0, 7};
  window.keys = Range{3, 11};
  window.heads = Range{1, 3};
  std::vector<double> want;
  for (int64_t h = 1; h < 3; ++h) {
    for (int64_t i = 0; i < 7; ++i) {
      for (int64_t j = 3; j < 11; ++j) {
        want.push_back(whole[(h * 20 + i) * 20 + j]);
      }
    }
  }
  EXPECT_EQ(engine.Numbers({spec, window, {}}), want);
  const std::vector<int64_t> queries = {19, 0, 4};
  const std::vector<int64_t> keys = {7, 8, 0, 19};
  PairExtent lists;
  lists.query_positions = queries;
  lists.key_positions = keys;
  want.clear();
  for (int64_t h = 0; h < kHeads; ++h) {
    for (const int64_t i : queries) {
      for (const int64_t j : keys) want.push_back(whole[(h * 20 + i) * 20 + j]);
    }
  }
  EXPECT_EQ(engine.Numbers({spec, lists, {}}), want);
  engine.ExpectSliceable({spec, Pair(20, 20), {}});
}

TEST(Tupe, PositionsBeyondTheTableAreOutOfRange) {
  EngineHarness engine;
  for (const bool reset : {false, true}) {
    const int64_t length = reset ? kRows - 1 : kRows;
    EXPECT_THAT(engine.MakePlan({Both(reset), Pair(length, length), {}}),
                IsOk());
    EXPECT_THAT(engine.MakePlan({Both(reset), Pair(1, length + 1, 0), {}}),
                StatusIs(absl::StatusCode::kOutOfRange,
                         HasSubstr("pair.key_length: got")));
    EXPECT_THAT(engine.MakePlan({Both(reset), Pair(1, 1, -1), {}}),
                StatusIs(absl::StatusCode::kOutOfRange,
                         HasSubstr("pair.query_offset: got")));
  }
}

TEST(Tupe, ConstantPositionsAreNormalisedToTheBiasNotNan) {
  TupeSpec spec = Both(false);
  spec.position_table =
      TableOf({kRows, kDim}, std::vector<float>(kRows * kDim, 2));
  for (const double number : EngineHarness().Numbers({spec, Pair(3, 3), {}})) {
    EXPECT_TRUE(std::isfinite(number));
  }
}

TEST(Tupe, DefaultsAreErasedFromTheIdentity) {
  EngineHarness engine;
  const auto fingerprint = [&](const TupeSpec& spec) {
    return engine.Plan({spec, Pair(4, 4), {}})->fingerprint();
  };
  TupeSpec spec = Both(true);
  const std::string plain = fingerprint(spec);
  // sqrt(2) / 4.
  spec.position_scale = 0x1.6a09e667f3bcdp-2;
  EXPECT_EQ(fingerprint(spec), plain);
  spec.position_scale = 0.5;
  EXPECT_NE(fingerprint(spec), plain);
  EXPECT_NE(fingerprint(Both(false)), plain);
  const PlanPtr plan = engine.Plan({Both(true), Pair(4, 4), {}});
  EXPECT_EQ(engine.Plan(plan->resolved_spec())->fingerprint(), plain);
}

TEST(Tupe, BadHyperparametersAreNamed) {
  struct Case {
    const char* name;
    void (*change)(TupeSpec&, Output&);
    const char* message;
  };
  const Case cases[] = {
      {"heads",
       [](TupeSpec& s, Output&) {
         s.num_heads = 0;
         s.relative_table.reset();
       },
       "tupe.num_heads: not set"},
      {"heads of the relative table",
       [](TupeSpec& s, Output&) { s.num_heads = 4; },
       "tupe.relative_table: got shape [33, 3], want [33 buckets, 4 heads "
       "(num_heads)]"},
      {"no row for the class token",
       [](TupeSpec& s, Output&) {
         s.relative_table = RandomTable({32, 3}, 1);
       },
       "tupe.relative_table: got shape [32, 3], want [33 buckets, 3 heads "
       "(num_heads)]"},
      {"heads that do not divide",
       [](TupeSpec& s, Output&) {
         s.num_heads = 5;
         s.relative_table = RandomTable({33, 5}, 1);
       },
       "tupe.num_heads: got 5, want a divisor of position_table's columns, 12"},
      {"odd buckets", [](TupeSpec& s, Output&) { s.num_buckets = 31; },
       "tupe.num_buckets: got 31, want an even number in [4, 4096]"},
      {"near", [](TupeSpec& s, Output&) { s.max_distance = 8; },
       "tupe.max_distance: got 8"},
      {"no query weight", [](TupeSpec& s, Output&) { s.query_weight.reset(); },
       "tupe.query_weight: not set, want it with tupe.position_table"},
      {"no position table",
       [](TupeSpec& s, Output&) { s.position_table.reset(); },
       "tupe.position_table: not set"},
      {"half a norm", [](TupeSpec& s, Output&) { s.norm_bias.reset(); },
       "tupe.norm_bias: not set, want it with tupe.norm_weight"},
      {"other d_model",
       [](TupeSpec& s, Output&) {
         s.key_weight = RandomTable({12, 11}, 1);
       },
       "tupe.key_weight: got shape [12, 11], want [12 d_model, 12 d_model]"},
      {"one row for the class token",
       [](TupeSpec& s, Output&) {
         s.position_table = RandomTable({1, 12}, 1);
       },
       "tupe.position_table: got 1 rows of 12, want at least 2"},
      {"eps", [](TupeSpec& s, Output&) { s.norm_eps = 0; },
       "tupe.norm_eps: got 0, want a number in (0, 1]"},
      {"position scale", [](TupeSpec& s, Output&) { s.position_scale = NAN; },
       "tupe.position_scale: got nan"},
      {"no term", [](TupeSpec& s, Output&) { s = {.num_heads = 3}; },
       "tupe.relative_table: not set, want it or position_table"},
      {"scale alone",
       [](TupeSpec& s, Output&) { s = {.num_heads = 3, .position_scale = 2}; },
       "tupe.position_table: not set"},
      {"buckets of both terms",
       [](TupeSpec&, Output& o) { o.values = Values::kBuckets; },
       "output.values: got BUCKETS, want BIAS"},
      {"scale", [](TupeSpec&, Output& o) { o.scale = INFINITY; },
       "output.scale: got inf"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    TupeSpec spec = Both(true);
    Output output;
    c.change(spec, output);
    EXPECT_THAT(
        MakeEncoding(spec, output),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message)));
  }
}

}  // namespace
}  // namespace attnbias::tupe_test
