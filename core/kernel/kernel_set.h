// SPDX-License-Identifier: Apache-2.0
// Tables of kernels, one for each instruction set. A kernel takes pointers and counts and is
// noexcept. All sets give the same bits, once the elements that they report as undecided are
// resolved.
//
// Kernels do not allocate, validate or dispatch, and this header uses only std, so that kernels can
// be compiled separately for another machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace attnbias {

// Size in bytes from which expand_rows bypasses the caches. A core's private caches are smaller, so
// none of the result would stay in them.
inline constexpr int64_t kStreamingBytes = int64_t{4} << 20;

// Maximum number of column pairs that a kernel processes at once. Pair counts are rounded up to a
// multiple of this number, and kernels may overrun rows by this many pairs.
inline constexpr int64_t kPairMultiple = 8;

// Sines and cosines of one angle per column pair, each the sum of two doubles; four [pairs] arrays,
// aligned to 64 bytes.
template <typename Number>
struct RotorArrays {
  Number* sin_hi;
  Number* sin_lo;
  Number* cos_hi;
  Number* cos_lo;
};
using Rotors = RotorArrays<double>;
using ConstRotors = RotorArrays<const double>;

constexpr ConstRotors AsConst(const Rotors& rotors) {
  return {rotors.sin_hi, rotors.sin_lo, rotors.cos_hi, rotors.cos_lo};
}

// Error of a sine or cosine formed from correctly rounded doubles, in units of |S c| + |C s|: the
// roundings of each factor, each product, the two sums and the interval's other end add up to 6 x
// 2^-53. The rest is margin.
inline constexpr double kRotationBound = 0x1p-50;

// Rows of sines and cosines for consecutive positions: row n has the angles of the first position
// plus those of position n. An anchor whose length is not 1 scales all of them.
struct SinusoidBlock {
  // Anchor for the first position, [pairs].
  const double* anchor_sin;
  const double* anchor_cos;
  // Row-major [rows, pairs].
  const double* rotation_sin;
  const double* rotation_cos;
  // Half the width of the interval that contains a sine, [pairs]. It is at most cos_bound, which is
  // half the width for a cosine.
  const double* sin_bound;
  double cos_bound;
  int64_t rows;
  // `pairs` is a multiple of kPairMultiple. `sines` and `cosines` count the pairs that have a sine
  // or a cosine in the row.
  int64_t pairs;
  int64_t sines;
  int64_t cosines;
  // Number of elements in a row. Sine i is at i * pair_stride, cosine i at cos_offset + i *
  // pair_stride; pair_stride is 1, or 2 with cos_offset 1.
  int64_t width;
  int64_t pair_stride;
  int64_t cos_offset;
  // Bypasses the caches, as KernelSet::stream does. Allowed only for adjacent pairs without
  // padding, with `out` and the rows aligned to cache lines.
  bool stream;
};

// Writes the block's elements, rounded to nearest even, row-major to `out`, which it overruns by at
// most 2 kPairMultiple elements. Writes the indices of elements whose rounding it cannot decide to
// `undecided`, which has room for 2 * rows * pairs, and returns their count.
template <typename Element>
using FillSinusoid = int64_t (*)(const SinusoidBlock& block, Element* out,
                                 uint32_t* undecided) noexcept;

// `count` rows, `stride` elements apart.
struct MatrixRows {
  const double* data;
  int64_t stride;
  int64_t count;
};

class Accelerator;

struct KernelSet {
  // "avx512", "avx2", "neon" or "scalar".
  std::string_view name;

  FillSinusoid<float> fill_sinusoid_f32;
  // Elements are the bits of a BF16 or F16.
  FillSinusoid<uint16_t> fill_sinusoid_bf16;
  FillSinusoid<uint16_t> fill_sinusoid_f16;

  // Sets `out` to the sums of the angles of `a` and `b`, over `pairs` pairs (a multiple of
  // kPairMultiple), each value within 2^-101 (|S c| + |C s|) of its exact value. `out` may be `a`
  // or `b`.
  void (*rotate)(const ConstRotors& a, const ConstRotors& b, const Rotors& out,
                 int64_t pairs) noexcept;

  // Copies, bypassing the caches. Other threads see the copy once the copying thread has called
  // end_streaming().
  void (*stream)(const std::byte* source, std::byte* out, int64_t size) noexcept;
  void (*end_streaming)() noexcept;

  // Copies the row_bytes bytes at source + i * source_stride (in bytes, of either sign; rows may
  // overlap; any alignment) to row i of the contiguous `out` [rows, row_bytes]. Results of at least
  // kStreamingBytes bypass the caches.
  void (*expand_rows)(const std::byte* source, int64_t source_stride, std::byte* out, int64_t rows,
                      int64_t row_bytes) noexcept;

  // Sets sums[j] = factors[k] * matrix.data[k * matrix.stride + j] + sums[j] for j < width, in the
  // order k = 0, 1, ..., each rounded once.
  void (*add_products)(const double* factors, const MatrixRows& matrix, double* sums,
                       int64_t width) noexcept;

  // A device that is tried before the CPU, or null.
  Accelerator* accelerator = nullptr;
};

struct BuiltKernelSet {
  KernelSet kernels;
  // Highway's bit for the instruction set.
  int64_t target;
};

// Returns the sets in this binary, best first, "scalar" last.
std::span<const BuiltKernelSet> BuiltKernelSets();

// Returns the sets that this CPU supports, in the same order. Never empty.
std::span<const KernelSet* const> SupportedKernelSets();

// Returns the supported set with that name, or null.
const KernelSet* FindKernelSet(std::string_view name);

}  // namespace attnbias
