// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/encoding/sinusoid/sinusoid.h"
#include "core/request/rules.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/sinusoidal_oracle.h"

namespace attnbias::sinusoidal_test {
namespace {

using Bytes = std::vector<std::byte>;

constexpr auto kInterleaved = SinusoidLayout::kInterleaved;
constexpr auto kSinesCosines = SinusoidLayout::kSinesCosines;
constexpr auto kTensor2Tensor = SinusoidLayout::kTensor2Tensor;

const KernelSet& BestKernels() { return *SupportedKernelSets().front(); }

EvaluatorPtr Prepared(const SinusoidTable& spec, DataType type, double scale = 1,
                      const KernelSet& kernels = BestKernels()) {
  return MakeWith(MessageOf(spec), Scaled(scale))->prepare({type, scale}, kernels);
}

// Rows [begin, end) of a spec, computed by one evaluator in pieces split at random points.
class Table {
 public:
  Table(const SinusoidTable& spec, DataType type, double scale = 1,
        const KernelSet& kernels = BestKernels())
      : row_bytes_(spec.dim * SizeOf(type)),
        type_(type),
        evaluator_(Prepared(spec, type, scale, kernels)) {}

  Bytes Rows(Range rows) const {
    Bytes bytes(rows.size() * row_bytes_);
    evaluator_->Fill({{0, 1}, rows}, bytes.data(), 0);
    return bytes;
  }

  std::vector<double> Row(int64_t position) const {
    const Bytes bytes = Rows({position, position + 1});
    std::vector<double> row;
    for (int64_t i = 0; i < row_bytes_ / SizeOf(type_); ++i) {
      row.push_back(ElementAt(type_, bytes.data(), i));
    }
    return row;
  }

  int64_t row_bytes() const { return row_bytes_; }

 private:
  int64_t row_bytes_;
  DataType type_;
  std::unique_ptr<const Evaluator> evaluator_;
};

std::vector<double> F64Row(const SinusoidTable& spec, int64_t position) {
  return Table(spec, DataType::kF64).Row(position);
}

MATCHER_P(Prints, digits, "") {
  if (arg.size() != digits.size()) return false;
  for (size_t i = 0; i < arg.size(); ++i) {
    if (std::fabs(arg[i] - digits[i]) > 1e-12) return false;
  }
  return true;
}

std::vector<double> V(std::initializer_list<double> values) { return values; }

// ---------------------------------------------------------------------------
// Published rows

TEST(SinusoidalRows, InterleavedMatchesThePaper) {
  EXPECT_THAT(F64Row({.dim = 4}, 2),
              Prints(V({0.909297426826, -0.416146836547, 0.0199986666933, 0.999800006667})));
  EXPECT_THAT(F64Row({.dim = 6}, 5), Prints(V({-.958924274663, .283662185463, .230001711665,
                                               .973190224279, .010771965118, .999941980701})));
}

TEST(SinusoidalRows, SinesBeforeCosinesArePermuted) {
  const std::vector<double> interleaved = F64Row({.dim = 6}, 5);
  const std::vector<double> permuted = F64Row({.dim = 6, .layout = kSinesCosines}, 5);
  const int order[] = {0, 2, 4, 1, 3, 5};
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(permuted[i], interleaved[order[i]]);
  }
}

TEST(SinusoidalRows, Tensor2TensorHasItsOwnTimescales) {
  EXPECT_THAT(F64Row({.dim = 8, .layout = kTensor2Tensor}, 3),
              Prints(V({.141120008060, .138798101080, .00646325907019, .0002999999955,
                        -.989992496600, .990320699136, .999979112923, .999999955000})));
}

TEST(SinusoidalRows, Tensor2TensorEndsOddDimsWithZero) {
  const std::vector<double> row = F64Row({.dim = 7, .layout = kTensor2Tensor}, 3);
  EXPECT_THAT(row, Prints(V({.141120008060, .0299955002025, .0002999999955, -.989992496600,
                             .999550033749, .999999955000, 0})));
  EXPECT_TRUE(Same(row[6], 0.0));
}

TEST(SinusoidalRows, Tensor2TensorOfTwoColumnsIsOnePair) {
  EXPECT_THAT(F64Row({.dim = 2, .layout = kTensor2Tensor}, 3),
              Prints(V({0.141120008060, -0.989992496600})));
}

TEST(SinusoidalRows, OddDimHasOneExtraSine) {
  EXPECT_THAT(
      F64Row({.dim = 5, .layout = kSinesCosines}, 1),
      Prints(V({.841470984808, .0251162229098, .000630957302615, .540302305868, .999684537915})));
}

TEST(SinusoidalRows, StartingAtOneYieldsRowsOfTheSameTable) {
  const Table table({.dim = 8, .layout = kTensor2Tensor}, DataType::kF32);
  const Bytes whole = table.Rows({0, 5});
  const Bytes shifted = table.Rows({1, 5});
  EXPECT_TRUE(std::equal(shifted.begin(), shifted.end(), whole.begin() + table.row_bytes()));
}

// PE(p + k) = Rot(k) PE(p), and PE(p) PE(p + k) depends only on k.
TEST(SinusoidalRows, RotateIntoEachOther) {
  const Table table({.dim = 64}, DataType::kF64);
  for (const int64_t k : {1, 7, 1000}) {
    const std::vector<double> turn = table.Row(k);
    for (int64_t p = 0; p < 4096; p += 61) {
      const std::vector<double> from = table.Row(p);
      const std::vector<double> to = table.Row(p + k);
      for (int i = 0; i < 64; i += 2) {
        const double sine = from[i] * turn[i + 1] + from[i + 1] * turn[i];
        ASSERT_NEAR(to[i], sine, 1e-12);
      }
    }
  }
}

TEST(SinusoidalRows, HaveKnownInnerProducts) {
  const Table table({.dim = 512}, DataType::kF64);
  const std::pair<int, double> cases[] = {{0, 256}, {1, 249.1020978}, {5, 189.5966677}};
  for (const auto& [distance, expected] : cases) {
    const std::vector<double> a = table.Row(100);
    const std::vector<double> b = table.Row(100 + distance);
    double product = 0;
    for (int i = 0; i < 512; ++i) product += a[i] * b[i];
    EXPECT_NEAR(product, expected, 1e-7);
  }
}

// ---------------------------------------------------------------------------
// Correct rounding

// Compares a spec's table with the oracle, in every type.
class Checker {
 public:
  explicit Checker(const SinusoidTable& spec, double scale = 1)
      : spec_(spec), scale_(scale), oracle_(MessageOf(spec)) {
    for (const DataType type : kFloatTypes) {
      tables_.emplace_back(spec, type, scale);
    }
  }

  void Expect(Range rows, const std::vector<int64_t>& columns) {
    std::vector<Bytes> got;
    for (const Table& table : tables_) got.push_back(table.Rows(rows));
    Number exact(kOracleBits);
    for (int64_t row = 0; row < rows.size(); ++row) {
      for (const int64_t column : columns) {
        oracle_.Set(static_cast<double>(rows.begin + row), column, exact);
        mpfr_mul_d(exact, exact, scale_, MPFR_RNDN);
        for (size_t t = 0; t < got.size(); ++t) {
          const double actual = ElementAt(kFloatTypes[t], got[t].data(), row * spec_.dim + column);
          const double expected = RoundedReal(exact, kFloatTypes[t]);
          EXPECT_TRUE(Same(actual, expected))
              << NameOf(kFloatTypes[t]) << " dim " << spec_.dim << " position " << rows.begin + row
              << " column " << column << ": got " << actual << ", want " << expected;
        }
      }
    }
  }

  mpfr_ptr Frequency(int64_t column) { return oracle_.Frequency(column); }

 private:
  const SinusoidTable spec_;
  const double scale_;
  SinusoidalOracle oracle_;
  std::vector<Table> tables_;
};

void ExpectRounded(const SinusoidTable& spec, Range rows, const std::vector<int64_t>& columns,
                   double scale = 1) {
  Checker(spec, scale).Expect(rows, columns);
}

std::vector<int64_t> AllColumns(int64_t dim) {
  std::vector<int64_t> columns(dim);
  for (int64_t i = 0; i < dim; ++i) columns[i] = i;
  return columns;
}

TEST(SinusoidalRounding, IsCorrectForSamplesOfLargeTables) {
  struct Case {
    int64_t rows, dim;
  };
  std::mt19937_64 random(4);
  for (const Case& table : {Case{131072, 512}, Case{1048576, 64}}) {
    Checker checker({.dim = table.dim});
    for (int i = 0; i < 60; ++i) {
      const auto size = static_cast<int64_t>(random() % 90) + 1;
      const auto begin = static_cast<int64_t>(random() % (table.rows - size));
      std::vector<int64_t> columns(3);
      for (int64_t& column : columns) {
        column = static_cast<int64_t>(random() % table.dim);
      }
      checker.Expect({begin, begin + size}, columns);
    }
    checker.Expect({table.rows - 1, table.rows}, AllColumns(table.dim));
  }
}

// Two fused multiplications in doubles round these wrongly.
TEST(SinusoidalRounding, IsCorrectAtKnownWorstCases) {
  const SinusoidTable spec = {.dim = 128};
  ExpectRounded(spec, {4524508, 4524509}, {10, 11});
  ExpectRounded(spec, {7086789, 7086790}, {32, 33});
  // Positions that are inside blocks, and so computed by kernels, instead of at anchors.
  ExpectRounded(spec, {4524508 - 45, 4524508 + 60}, {11});
  ExpectRounded(spec, {7086789 - 45, 7086789 + 60}, {33});
}

// Returns the positions, up to the largest, whose angles are closest to a multiple of a quarter
// turn: denominators of the convergents of frequency / (pi / 2).
std::vector<int64_t> NearestToQuarters(mpfr_ptr frequency) {
  Number rest;
  Number whole;
  mpfr_const_pi(rest, MPFR_RNDN);
  mpfr_div_2ui(rest, rest, 1, MPFR_RNDN);
  mpfr_div(rest, frequency, rest, MPFR_RNDN);
  std::vector<int64_t> denominators;
  double before = 1;
  double last = 0;
  while (mpfr_zero_p(static_cast<mpfr_ptr>(rest)) == 0) {
    mpfr_floor(whole, rest);
    const double next = mpfr_get_d(whole, MPFR_RNDN) * last + before;
    if (next > static_cast<double>(kMaxPosition)) break;
    denominators.push_back(static_cast<int64_t>(next));
    before = last;
    last = next;
    mpfr_sub(rest, rest, whole, MPFR_RNDN);
    mpfr_ui_div(rest, 1, rest, MPFR_RNDN);
  }
  return denominators;
}

TEST(SinusoidalRounding, IsCorrectNextToZeroCrossings) {
  int64_t positions = 0;
  for (const SinusoidTable& spec : {SinusoidTable{.dim = 128}, SinusoidTable{.dim = 512},
                                    SinusoidTable{.dim = 64, .layout = kTensor2Tensor}}) {
    Checker checker(spec);
    for (int64_t pair = 0; pair < spec.dim / 2; pair += 3) {
      const bool interleaved = spec.layout == kInterleaved;
      const int64_t sine = interleaved ? 2 * pair : pair;
      const int64_t cosine = interleaved ? 2 * pair + 1 : spec.dim / 2 + pair;
      for (const int64_t p : NearestToQuarters(checker.Frequency(sine))) {
        checker.Expect({p, p + 1}, {sine, cosine});
        checker.Expect({std::max(-p - 3, -kMaxPosition), -p + 1}, {sine, cosine});
        ++positions;
      }
    }
  }
  EXPECT_GT(positions, 2000);
}

TEST(SinusoidalRounding, IsCorrectWhenScaled) {
  for (const double scale :
       {2.0, -1.0, 22.627416997969522, 1e-3, 0x1p-700, 1e-310, 1e300, -3e307}) {
    ExpectRounded({.dim = 6}, {-3, 40}, AllColumns(6), scale);
    ExpectRounded({.dim = 9, .layout = kTensor2Tensor}, {999999, 1000001}, AllColumns(9), scale);
  }
}

// Rounding the F32 table a second time would be wrong in 515 elements.
TEST(SinusoidalRounding, Bf16IsNotRoundedTwice) {
  const SinusoidTable spec = {.dim = 512};
  const Table f32(spec, DataType::kF32);
  const Table bf16(spec, DataType::kBF16);
  int64_t different = 0;
  for (int64_t begin = 0; begin < 131072; begin += 4096) {
    const Bytes once = bf16.Rows({begin, begin + 4096});
    const Bytes twice = f32.Rows({begin, begin + 4096});
    for (size_t i = 0; i < once.size() / 2; ++i) {
      uint32_t bits;
      uint16_t direct;
      std::memcpy(&bits, &twice[4 * i], sizeof(bits));
      std::memcpy(&direct, &once[2 * i], sizeof(direct));
      different += direct != (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    }
  }
  EXPECT_EQ(different, 515);
}

TEST(SinusoidReference, AgreesWithTheFormula) {
  std::mt19937_64 random(5);
  for (const auto layout : {kInterleaved, kSinesCosines, kTensor2Tensor}) {
    const SinusoidTable spec = {.dim = 37, .layout = layout};
    v1::Sinusoidal message = MessageOf(spec);
    ASSERT_TRUE(Complete("", false, Tables(), message).ok());
    const SinusoidAxis axis = AxesOf("", message)->front();
    const double scales[] = {1, 0.3};
    const SinusoidRows rows[] = {RowsOf(axis, axis.columns, scales[0]),
                                 RowsOf(axis, axis.columns, scales[1])};
    SinusoidalOracle oracle(message);
    for (int i = 0; i < 2000; ++i) {
      const auto position = static_cast<int64_t>(random() >> (23 + random() % 41));
      const auto column =
          static_cast<int64_t>(random() % (axis.columns.sines + axis.columns.cosines));
      const DataType type = kFloatTypes[i % 4];
      std::byte out[8];
      rows[i % 2].reference({position}, column, type, out);
      ASSERT_TRUE(Same(ElementAt(type, out),
                       oracle.Rounded(static_cast<double>(position), column, type, scales[i % 2])))
          << position << ", " << column;
    }
  }
}

// ---------------------------------------------------------------------------
// Every path yields the same bits

TEST(SinusoidalBits, DoNotDependOnConcurrency) {
  const Table table({.dim = 48}, DataType::kF32);
  const Bytes expected = table.Rows({0, 3000});
  std::vector<Bytes> results(4);
  std::vector<std::thread> threads(results.size());
  for (size_t i = 0; i < threads.size(); ++i) {
    threads[i] = std::thread([&, i] { results[i] = table.Rows({0, 3000}); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Bytes& result : results) EXPECT_EQ(result, expected);
}

// Tables large enough to bypass the caches, at aligned and odd addresses, and longer than a chain
// of anchors.
TEST(SinusoidalBits, DoNotDependOnSizeOrAlignment) {
  for (const SinusoidTable& spec :
       {SinusoidTable{.dim = 64}, SinusoidTable{.dim = 64, .layout = kSinesCosines},
        SinusoidTable{.dim = 5}}) {
    for (const DataType type : kFloatTypes) {
      for (const KernelSet* kernels : SupportedKernelSets()) {
        const auto evaluator = Prepared(spec, type, 1, *kernels);
        const int64_t row_bytes = spec.dim * SizeOf(type);
        const int64_t count = (kStreamingBytes + 8192) / row_bytes;
        Bytes storage(count * row_bytes + 256, std::byte{0xA5});
        void* start = storage.data();
        size_t space = storage.size();
        auto* aligned = static_cast<std::byte*>(std::align(64, space - 64, start, space));
        for (const int64_t shift : {int64_t{0}, SizeOf(type)}) {
          std::byte* out = aligned + shift;
          evaluator->Fill({{0, 1}, {0, count}}, out, 0);
          EXPECT_EQ(out[count * row_bytes], std::byte{0xA5});
          for (int64_t row = 0; row < count; row += 997) {
            Bytes alone(row_bytes);
            evaluator->Fill({{0, 1}, {row, row + 1}}, alone.data(), 0);
            ASSERT_TRUE(std::equal(alone.begin(), alone.end(), out + row * row_bytes))
                << kernels->name << " " << NameOf(type) << " row " << row;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace attnbias::sinusoidal_test
