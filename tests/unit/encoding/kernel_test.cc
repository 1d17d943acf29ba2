// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/encoding/sinusoid/sinusoid.h"
#include "core/kernel/kernel_set.h"
#include "core/numerics/double_double.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/mpfr_oracle.h"

namespace attnbias::kernel_test {
namespace {

using Bytes = std::vector<std::byte>;

TEST(KernelSets, EndWithScalarAndAreFoundByName) {
  ASSERT_FALSE(SupportedKernelSets().empty());
  EXPECT_EQ(SupportedKernelSets().back()->name, "scalar");
  for (const KernelSet* set : SupportedKernelSets()) {
    EXPECT_THAT(std::string(set->name), ::testing::AnyOf("avx512", "avx2", "neon", "scalar"));
    EXPECT_EQ(FindKernelSet(set->name), set);
  }
  EXPECT_EQ(FindKernelSet("sse9"), nullptr);
  EXPECT_EQ(FindKernelSet(""), nullptr);
}

Bytes RandomBytes(size_t size) {
  std::mt19937_64 random(8);
  Bytes bytes(size);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

class EveryKernelSet : public ::testing::TestWithParam<const KernelSet*> {};

TEST_P(EveryKernelSet, ExpandsRowsOfAnyStrideAndAlignment) {
  const Bytes source = RandomBytes(40000);
  for (const int64_t stride : {-8, -4, -2, 0, 2, 8, 37}) {
    for (const int64_t row_bytes : {1, 2, 30, 64, 100, 4096, 8191}) {
      for (const int64_t shift : {0, 2, 13}) {
        const int64_t rows = 23;
        Bytes out(rows * row_bytes + 64, std::byte{0x5A});
        const std::byte* first = &source[15000 + shift];
        GetParam()->expand_rows(first, stride, &out[shift], rows, row_bytes);
        for (int64_t row = 0; row < rows; ++row) {
          ASSERT_EQ(std::memcmp(&out[shift + row * row_bytes], first + row * stride, row_bytes), 0)
              << "stride " << stride << " size " << row_bytes << " row " << row;
        }
        EXPECT_EQ(out[shift + rows * row_bytes], std::byte{0x5A});
      }
    }
  }
}

// Above the size at which the caches are bypassed.
TEST_P(EveryKernelSet, ExpandsLargeMatrices) {
  for (const int64_t row_bytes : {4096, 4094, 3002}) {
    const int64_t rows = kStreamingBytes / row_bytes + 3;
    const Bytes source = RandomBytes(2 * rows + row_bytes);
    Bytes out(rows * row_bytes + 1, std::byte{0x5A});
    const std::byte* first = &source[2 * rows - 2];
    GetParam()->expand_rows(first, -2, out.data(), rows, row_bytes);
    for (int64_t row = 0; row < rows; ++row) {
      ASSERT_EQ(std::memcmp(&out[row * row_bytes], first - 2 * row, row_bytes), 0) << "row " << row;
    }
    EXPECT_EQ(out.back(), std::byte{0x5A});
  }
}

TEST_P(EveryKernelSet, StreamsAnySizeAndAlignment) {
  const Bytes source = RandomBytes(9000);
  for (int64_t size = 0; size < 700; size += 7) {
    for (const int64_t from : {0, 1, 31}) {
      for (const int64_t to : {0, 3, 64}) {
        Bytes out(1000, std::byte{0x5A});
        GetParam()->stream(&source[from], &out[to], size);
        GetParam()->end_streaming();
        ASSERT_EQ(std::memcmp(&out[to], &source[from], size), 0);
        ASSERT_EQ(out[to + size], std::byte{0x5A});
      }
    }
  }
}

// Sums in which every step rounds, so that order and fusion affect the result.
TEST_P(EveryKernelSet, AddsProductsInOrderWithOneRoundingEach) {
  std::mt19937_64 random(9);
  std::normal_distribution<double> normal;
  constexpr int64_t kCount = 37;
  constexpr int64_t kStride = 301;
  std::vector<double> matrix(kCount * kStride);
  std::vector<double> factors(kCount);
  for (double& each : matrix) each = normal(random);
  for (double& each : factors) each = normal(random);
  for (const int64_t width : {1, 2, 3, 7, 8, 31, 64, 65, 150, 300}) {
    std::vector<double> sums(width + 1, 0.25);
    GetParam()->add_products(factors.data(), {&matrix[1], kStride, kCount}, sums.data(), width);
    for (int64_t j = 0; j < width; ++j) {
      double want = 0.25;
      for (int64_t k = 0; k < kCount; ++k) {
        want = std::fma(factors[k], matrix[1 + k * kStride + j], want);
      }
      ASSERT_TRUE(Same(sums[j], want)) << width << " at " << j;
    }
    EXPECT_EQ(sums[width], 0.25);
  }
}

// ---------------------------------------------------------------------------
// Sinusoids

constexpr int64_t kPairs = 2 * kPairMultiple;

// Random angles as double-doubles with tiny low parts.
void SetRandomAngles(uint64_t seed, Rotors rotors) {
  std::mt19937_64 random(seed);
  Number angle;
  Number value;
  for (int64_t i = 0; i < kPairs; ++i) {
    mpfr_set_ui(angle, random() >> 32, MPFR_RNDN);
    mpfr_sqrt(angle, angle, MPFR_RNDN);
    mpfr_sin(value, angle, MPFR_RNDN);
    rotors.sin_hi[i] = mpfr_get_d(value, MPFR_RNDN);
    mpfr_sub_d(value, value, rotors.sin_hi[i], MPFR_RNDN);
    rotors.sin_lo[i] = mpfr_get_d(value, MPFR_RNDN);
    mpfr_cos(value, angle, MPFR_RNDN);
    rotors.cos_hi[i] = mpfr_get_d(value, MPFR_RNDN);
    mpfr_sub_d(value, value, rotors.cos_hi[i], MPFR_RNDN);
    rotors.cos_lo[i] = mpfr_get_d(value, MPFR_RNDN);
  }
}

// Sets `product` to the exact a b.
void SetProduct(DoubleDouble a, DoubleDouble b, mpfr_ptr product) {
  Number factor;
  mpfr_set_d(product, a.hi, MPFR_RNDN);
  mpfr_add_d(product, product, a.lo, MPFR_RNDN);
  mpfr_set_d(factor, b.hi, MPFR_RNDN);
  mpfr_add_d(factor, factor, b.lo, MPFR_RNDN);
  mpfr_mul(product, product, factor, MPFR_RNDN);
}

// Returns |ab + cd - actual| in units of |ab| + |cd|, as a power of two. Overwrites `ab` and `cd`.
double ErrorExponent(Number& ab, Number& cd, DoubleDouble actual) {
  Number error;
  mpfr_add(error, ab, cd, MPFR_RNDN);
  mpfr_sub_d(error, error, actual.hi, MPFR_RNDN);
  mpfr_sub_d(error, error, actual.lo, MPFR_RNDN);
  mpfr_abs(ab, ab, MPFR_RNDN);
  mpfr_abs(cd, cd, MPFR_RNDN);
  mpfr_add(ab, ab, cd, MPFR_RNDN);
  mpfr_div(error, error, ab, MPFR_RNDN);
  const double ratio = std::fabs(mpfr_get_d(error, MPFR_RNDN));
  return ratio == 0 ? -1000 : std::log2(ratio);
}

TEST_P(EveryKernelSet, RotatesWithinItsErrorBound) {
  RotorRows rows(3, kPairs);
  Number first;
  Number second;
  double worst = -1000;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Rotors a = rows.Row(0);
    const Rotors b = rows.Row(1);
    const Rotors out = rows.Row(2);
    SetRandomAngles(2 * seed, a);
    SetRandomAngles(2 * seed + 1, b);
    GetParam()->rotate(AsConst(a), AsConst(b), out, kPairs);
    for (int64_t i = 0; i < kPairs; ++i) {
      const DoubleDouble s0 = {a.sin_hi[i], a.sin_lo[i]};
      const DoubleDouble c0 = {a.cos_hi[i], a.cos_lo[i]};
      const DoubleDouble s1 = {b.sin_hi[i], b.sin_lo[i]};
      const DoubleDouble c1 = {b.cos_hi[i], b.cos_lo[i]};
      SetProduct(s0, c1, first);
      SetProduct(c0, s1, second);
      worst = std::max(worst, ErrorExponent(first, second, {out.sin_hi[i], out.sin_lo[i]}));
      SetProduct(c0, c1, first);
      SetProduct(-s0, s1, second);
      worst = std::max(worst, ErrorExponent(first, second, {out.cos_hi[i], out.cos_lo[i]}));
    }
  }
  EXPECT_LE(worst, -101);
  EXPECT_GE(worst, -109);
}

// A block whose anchor and rotations are random doubles.
struct RandomBlock {
  static constexpr int64_t kRows = 7;

  explicit RandomBlock(uint64_t seed) : anchor(1, kPairs), rotations(kRows, kPairs), bound(kPairs) {
    SetRandomAngles(seed, anchor.Row(0));
    for (int64_t row = 0; row < kRows; ++row) {
      SetRandomAngles(seed + 1 + row, rotations.Row(row));
    }
    std::fill(bound.begin(), bound.end(), kRotationBound);
  }

  SinusoidBlock Get() const {
    const ConstRotors anchors = anchor.Row(0);
    const ConstRotors turns = rotations.Row(0);
    return {.anchor_sin = anchors.sin_hi,
            .anchor_cos = anchors.cos_hi,
            .rotation_sin = turns.sin_hi,
            .rotation_cos = turns.cos_hi,
            .sin_bound = bound.data(),
            .cos_bound = kRotationBound,
            .rows = kRows,
            .pairs = kPairs,
            .sines = kPairs,
            .cosines = kPairs,
            .width = 2 * kPairs,
            .pair_stride = 2,
            .cos_offset = 1,
            .stream = false};
  }

  RotorRows anchor;
  RotorRows rotations;
  AlignedDoubles bound;
};

// Sets `exact` to the exact sine or cosine that the formula yields for the block's doubles.
void SetExact(const SinusoidBlock& block, int64_t row, int64_t column, mpfr_ptr exact) {
  const int64_t pair = column / 2;
  const double s0 = block.anchor_sin[pair];
  const double c0 = block.anchor_cos[pair];
  const double s1 = block.rotation_sin[row * kPairs + pair];
  const double c1 = block.rotation_cos[row * kPairs + pair];
  Number other;
  mpfr_set_d(exact, column % 2 == 0 ? s0 : c0, MPFR_RNDN);
  mpfr_mul_d(exact, exact, c1, MPFR_RNDN);
  mpfr_set_d(other, column % 2 == 0 ? c0 : -s0, MPFR_RNDN);
  mpfr_mul_d(other, other, s1, MPFR_RNDN);
  mpfr_add(exact, exact, other, MPFR_RNDN);
}

template <typename Element>
void ExpectDecidedAreRounded(FillSinusoid<Element> fill, DataType type) {
  Number exact;
  int64_t undecided_count = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const RandomBlock random(100 * seed);
    const SinusoidBlock block = random.Get();
    std::vector<Element> out(block.rows * block.width + 2 * kPairMultiple);
    std::vector<uint32_t> undecided(2 * block.rows * block.pairs);
    undecided.resize(fill(block, out.data(), undecided.data()));
    undecided_count += static_cast<int64_t>(undecided.size());
    for (int64_t i = 0; i < block.rows * block.width; ++i) {
      if (std::count(undecided.begin(), undecided.end(), i) != 0) continue;
      SetExact(block, i / block.width, i % block.width, exact);
      ASSERT_TRUE(Same(ElementAt(type, out.data(), i), RoundedBy(exact, type)))
          << NameOf(type) << " element " << i << " of seed " << seed;
    }
  }
  EXPECT_LT(undecided_count, 3);
}

TEST_P(EveryKernelSet, DecidedResultsAreRoundedCorrectly) {
  ExpectDecidedAreRounded(GetParam()->fill_sinusoid_f32, DataType::kF32);
  ExpectDecidedAreRounded(GetParam()->fill_sinusoid_bf16, DataType::kBF16);
  ExpectDecidedAreRounded(GetParam()->fill_sinusoid_f16, DataType::kF16);
}

// Checks that the kernel leaves an anchor undecided if it is halfway between two results.
template <typename Element>
void ExpectUndecided(FillSinusoid<Element> fill, double middle) {
  RandomBlock random(1);
  const Rotors anchor = random.anchor.Row(0);
  const Rotors turn = random.rotations.Row(3);
  anchor.sin_hi[9] = middle;
  turn.sin_hi[9] = 0;
  turn.cos_hi[9] = 1;
  SinusoidBlock block = random.Get();
  block.rows = 5;
  std::vector<Element> out(block.rows * block.width + 2 * kPairMultiple);
  std::vector<uint32_t> undecided(2 * block.rows * block.pairs);
  undecided.resize(fill(block, out.data(), undecided.data()));
  EXPECT_THAT(undecided, ::testing::ElementsAre(3 * block.width + 18));
}

TEST_P(EveryKernelSet, LeavesMidpointsUndecided) {
  for (const double away : {0.0, 0x1p-51, -0x1p-51}) {
    ExpectUndecided(GetParam()->fill_sinusoid_f32, 0.75 + 0x1p-25 + away);
    ExpectUndecided(GetParam()->fill_sinusoid_bf16, 0.75 + 0x1p-9 + away);
    ExpectUndecided(GetParam()->fill_sinusoid_f16, 0.75 + 0x1p-12 + away);
    ExpectUndecided(GetParam()->fill_sinusoid_f16, 0x1p-20 + 0x1p-25 + away);
  }
}

INSTANTIATE_TEST_SUITE_P(Here, EveryKernelSet,
                         ::testing::ValuesIn(SupportedKernelSets().begin(),
                                             SupportedKernelSets().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace attnbias::kernel_test
