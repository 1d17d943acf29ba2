// SPDX-License-Identifier: Apache-2.0
// The bodies of all CPU kernels, written once for Highway vectors. Only kernels.cc includes this,
// once per instruction set.
//
// An instruction set needs IEEE 754 doubles. MulAdd may or may not fuse: the bounds in kernel_set.h
// hold either way. Fused always fuses, for results that are defined exactly.
#if defined(ATTNBIAS_CORE_KERNEL_CPU_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTNBIAS_CORE_KERNEL_CPU_KERNELS_INL_H_
#undef ATTNBIAS_CORE_KERNEL_CPU_KERNELS_INL_H_
#else
#define ATTNBIAS_CORE_KERNEL_CPU_KERNELS_INL_H_
#endif

#include <cmath>
#include <cstring>

#include "core/kernel/kernel_set.h"
#include "core/numerics/narrow.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attnbias {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::CappedTag<double, kPairMultiple>;
using Floats = hn::Rebind<float, Doubles>;
using Words = hn::Rebind<uint32_t, Doubles>;
using DoubleVec = hn::Vec<Doubles>;
using FloatVec = hn::Vec<Floats>;
using WordVec = hn::Vec<Words>;

// ---------------------------------------------------------------------------
// Rounding with a test
//
// A format rounds doubles to elements and tests whether the whole interval [high - width, high],
// which contains the exact value, rounds to one element. A test covers several vectors; if it is
// undecided, their elements are tested one by one.

using WordMask = hn::Mask<Words>;

#if HWY_TARGET != HWY_SCALAR
using BothFloats = hn::Twice<Floats>;

// 0, lanes, 1, lanes + 1, ...
struct ZipOrder {
  static constexpr int32_t kLanes = hn::MaxLanes(Floats());
  alignas(64) int32_t lanes[2 * kLanes];

  constexpr ZipOrder() : lanes() {
    for (int32_t i = 0; i < kLanes; ++i) {
      lanes[2 * i] = i;
      lanes[2 * i + 1] = kLanes + i;
    }
  }
};

constexpr ZipOrder kZipOrder;

// Returns sin 0, cos 0, sin 1, cos 1, ... with one permutation; one store then suffices.
HWY_INLINE hn::Vec<BothFloats> Zip(WordVec sin, WordVec cos) {
  const BothFloats d;
  const auto both = hn::Combine(d, hn::BitCast(Floats(), cos), hn::BitCast(Floats(), sin));
  return hn::TableLookupLanes(both, hn::SetTableIndices(d, kZipOrder.lanes));
}
#endif

template <bool kStream, class D>
HWY_INLINE void Write(hn::Vec<D> vector, D d, hn::TFromD<D>* out) {
  if constexpr (kStream) {
    hn::Stream(vector, d, out);
  } else {
    hn::StoreU(vector, d, out);
  }
}

struct F32Format {
  using Element = float;
  using Scalar = F32Element;

  struct Test {
    WordVec differing;

    HWY_INLINE Test() : differing(hn::Zero(Words())) {}
    // Exact: the two ends round to different values.
    HWY_INLINE WordMask Doubts(DoubleVec /*width*/) const {
      return hn::Ne(differing, hn::Zero(Words()));
    }
  };

  static HWY_INLINE WordVec Round(DoubleVec high, DoubleVec width, Test& test) {
    const WordVec bits = ToFloat(high);
    const WordVec other = ToFloat(hn::Sub(high, width));
    test.differing = hn::Or(test.differing, hn::Xor(bits, other));
    return bits;
  }
  static HWY_INLINE WordVec ToFloat(DoubleVec value) {
    return hn::BitCast(Words(), hn::DemoteTo(Floats(), value));
  }
  static HWY_INLINE void Store(WordVec bits, float* out) {
    hn::StoreU(hn::BitCast(Floats(), bits), Floats(), out);
  }
#if HWY_TARGET != HWY_SCALAR
  template <bool kStream>
  static HWY_INLINE void StorePairs(WordVec sin, WordVec cos, float* out) {
    Write<kStream>(Zip(sin, cos), BothFloats(), out);
  }
#endif
};

// 16-bit formats round the F32 nearest to `high` once more. If the interval's relative width is
// below 2^-25, the exact value lies between that F32's two neighbors; if none of these three is the
// midpoint between two results, double rounding is harmless. At magnitudes from 2^kLeastExponent
// up, an element has kDropped fewer mantissa bits than an F32.
template <int kDropped, int kLeastExponent>
struct Format16 {
  using Element = uint16_t;

  struct Test {
    // Minimum distance from the neighborhood of a midpoint, and minimum magnitude. Both are
    // computed on the bits of F32s, which are ordered like their magnitudes.
    WordVec nearest;
    WordVec smallest;

    HWY_INLINE Test()
        : nearest(hn::Set(Words(), ~uint32_t{0})), smallest(hn::Set(Words(), ~uint32_t{0})) {}
    HWY_INLINE WordMask Doubts(DoubleVec width) const {
      const Words w;
      const FloatVec enough = hn::DemoteTo(Floats(), hn::Mul(width, hn::Set(Doubles(), 0x1p26)));
      constexpr float kLeast = 1.0f / (uint64_t{1} << -kLeastExponent);
      const FloatVec least = hn::Max(enough, hn::Set(Floats(), kLeast));
      return hn::Or(hn::Lt(nearest, hn::Set(w, 2 * kUnit + 1)),
                    hn::Lt(smallest, hn::BitCast(w, least)));
    }
  };

  // Tests the nearest F32 and returns the bits of its magnitude.
  static HWY_INLINE WordVec Magnitude(WordVec bits, Test& test) {
    const Words w;
    const WordVec magnitude = hn::And(bits, hn::Set(w, 0x7FFFFFFFu));
    // The midpoint and its two neighbors become the integers 0 to 2 kUnit.
    const WordVec dropped = hn::ShiftLeft<32 - kDropped>(bits);
    const WordVec distance = hn::Sub(dropped, hn::Set(w, (uint32_t{1} << 31) - kUnit));
    test.nearest = hn::Min(test.nearest, distance);
    test.smallest = hn::Min(test.smallest, magnitude);
    return magnitude;
  }

  static HWY_INLINE hn::Vec<hn::Rebind<uint16_t, Words>> Half(WordVec bits) {
    const hn::RebindToSigned<Words> i;
    return hn::DemoteTo(hn::Rebind<uint16_t, Words>(), hn::BitCast(i, bits));
  }
  static HWY_INLINE void Store(WordVec bits, uint16_t* out) {
    hn::StoreU(Half(bits), hn::Rebind<uint16_t, Words>(), out);
  }
#if HWY_TARGET != HWY_SCALAR
  template <bool kStream>
  static HWY_INLINE void StorePairs(WordVec sin, WordVec cos, uint16_t* out) {
    const hn::Repartition<uint16_t, Words> d;
    // Undecided elements may have more than 16 bits.
    const WordVec low = hn::And(sin, hn::Set(Words(), 0xFFFF));
    const WordVec both = hn::Or(low, hn::ShiftLeft<16>(cos));
    Write<kStream>(hn::BitCast(d, both), d, out);
  }
#endif

 private:
  // A unit in the last place of the shifted dropped bits.
  static constexpr uint32_t kUnit = uint32_t{1} << (32 - kDropped);
};

struct Bf16Format : Format16</*kDropped=*/16, /*kLeastExponent=*/-63> {
  using Scalar = Bf16Element;

  static HWY_INLINE WordVec Round(DoubleVec high, DoubleVec /*width*/, Test& test) {
    const WordVec bits = F32Format::ToFloat(high);
    Magnitude(bits, test);
    return hn::ShiftRight<16>(hn::Add(bits, hn::Set(Words(), 0x8000)));
  }
};

struct F16Format : Format16</*kDropped=*/13, /*kLeastExponent=*/-14> {
  using Scalar = F16Element;

  static HWY_INLINE WordVec Round(DoubleVec high, DoubleVec /*width*/, Test& test) {
    const Words w;
    const WordVec bits = F32Format::ToFloat(high);
    const WordVec magnitude = Magnitude(bits, test);
    const WordVec sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
    // Rounds the mantissa and changes the exponent's bias.
    constexpr uint32_t kRebias = (127u - 15u) << 23;
    const WordVec sum = hn::Add(magnitude, hn::Set(w, 0x1000u - kRebias));
    return hn::Or(hn::ShiftRight<13>(sum), sign);
  }
};

// ---------------------------------------------------------------------------
// Sines and cosines from an anchor and rotations

// Rows processed together, so that the anchor is loaded only once.
inline constexpr int64_t kRowsAtOnce = 4;

// Operands that all rows share for some pairs.
struct Anchor {
  int64_t pair;
  DoubleVec sin;
  DoubleVec cos;
  DoubleVec sin_bound;
  DoubleVec cos_bound;
};

// High ends of the intervals for sines and cosines.
struct HighEnds {
  DoubleVec sin;
  DoubleVec cos;
};

HWY_INLINE Anchor AnchorAt(const SinusoidBlock& block, int64_t pair) {
  const Doubles d;
  return {pair, hn::Load(d, block.anchor_sin + pair), hn::Load(d, block.anchor_cos + pair),
          hn::Load(d, block.sin_bound + pair), hn::Set(d, block.cos_bound)};
}

HWY_INLINE HighEnds Rotated(const Anchor& anchor, const double* rotation_sin,
                            const double* rotation_cos) {
  const Doubles d;
  const DoubleVec sin = hn::Load(d, rotation_sin);
  const DoubleVec cos = hn::Load(d, rotation_cos);
  return {hn::MulAdd(anchor.sin, cos, hn::MulAdd(anchor.cos, sin, anchor.sin_bound)),
          hn::NegMulAdd(anchor.sin, sin, hn::MulAdd(anchor.cos, cos, anchor.cos_bound))};
}

struct Undecided {
  uint32_t* indices;
  int64_t count;
};

// Decides, one by one, the elements of a row that the format's test leaves undecided: both ends of
// the interval must round to the same element.
template <class Format>
HWY_NOINLINE void RecheckRow(const SinusoidBlock& block, int64_t row, int64_t pair,
                             typename Format::Element* out, Undecided& undecided) {
  const Doubles d;
  const auto recheck = [&](DoubleVec high, DoubleVec width, int64_t offset,
                           int64_t columns) HWY_ATTR {
    typename Format::Test test;
    Format::Round(high, width, test);
    constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(Doubles()));
    HWY_ALIGN double ends[kLanes];
    HWY_ALIGN double widths[kLanes];
    uint8_t doubts[8] = {};
    hn::Store(high, d, ends);
    hn::Store(width, d, widths);
    hn::StoreMaskBits(Words(), test.Doubts(width), doubts);
    const int64_t left = columns - pair;
    for (int64_t lane = 0; lane < left && lane < kLanes; ++lane) {
      if ((doubts[0] >> lane & 1) == 0) continue;
      const int64_t at = row * block.width + offset + (pair + lane) * block.pair_stride;
      typename Format::Scalar::Bits bits;
      if (RoundInterval<typename Format::Scalar>(ends[lane], widths[lane], &bits)) {
        std::memcpy(out + at, &bits, sizeof(bits));
      } else {
        undecided.indices[undecided.count++] = static_cast<uint32_t>(at);
      }
    }
  };
  const Anchor anchor = AnchorAt(block, pair);
  const int64_t at = row * block.pairs + pair;
  const HighEnds high = Rotated(anchor, block.rotation_sin + at, block.rotation_cos + at);
  recheck(high.sin, hn::Add(anchor.sin_bound, anchor.sin_bound), 0, block.sines);
  recheck(high.cos, hn::Add(anchor.cos_bound, anchor.cos_bound), block.cos_offset, block.cosines);
}

// How a vector of sines and one of cosines are stored: separately, in pairs, or in pairs that
// bypass the caches.
enum class PairStore { kApart, kPaired, kStreamed };

template <class Format, PairStore kStore>
HWY_INLINE void StoreBoth(WordVec sin, WordVec cos, int64_t cos_offset,
                          typename Format::Element* out) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kStore != PairStore::kApart) {
    Format::template StorePairs<kStore == PairStore::kStreamed>(sin, cos, out);
    return;
  }
#endif
  Format::Store(sin, out);
  Format::Store(cos, out + cos_offset);
}

// Fills kRows rows, from the last pairs to the first. Padding after the sines spills into the
// cosines, and padding after a row into the next row, but the elements there are written later.
template <class Format, PairStore kStore, int64_t kRows>
HWY_INLINE void FillRows(const SinusoidBlock& block, int64_t first_row,
                         typename Format::Element* out, Undecided& undecided) {
  const Words w;
  const auto lanes = static_cast<int64_t>(hn::Lanes(w));
  for (int64_t pair = block.pairs - lanes; pair >= 0; pair -= lanes) {
    const Anchor anchor = AnchorAt(block, pair);
    const DoubleVec sin_width = hn::Add(anchor.sin_bound, anchor.sin_bound);
    const DoubleVec cos_width = hn::Add(anchor.cos_bound, anchor.cos_bound);
    typename Format::Test sin_test;
    typename Format::Test cos_test;
    const double* rotation_sin = block.rotation_sin + first_row * block.pairs + pair;
    const double* rotation_cos = block.rotation_cos + first_row * block.pairs + pair;
    auto* to = out + first_row * block.width + pair * block.pair_stride;
    for (int64_t row = 0; row < kRows; ++row) {
      const HighEnds high = Rotated(anchor, rotation_sin, rotation_cos);
      const WordVec sin = Format::Round(high.sin, sin_width, sin_test);
      const WordVec cos = Format::Round(high.cos, cos_width, cos_test);
      StoreBoth<Format, kStore>(sin, cos, block.cos_offset, to);
      rotation_sin += block.pairs;
      rotation_cos += block.pairs;
      to += block.width;
    }
    if (HWY_UNLIKELY(
            !hn::AllFalse(w, hn::Or(sin_test.Doubts(sin_width), cos_test.Doubts(cos_width))))) {
      for (int64_t row = first_row; row < first_row + kRows; ++row) {
        RecheckRow<Format>(block, row, pair, out, undecided);
      }
    }
  }
}

template <class Format, PairStore kStore, int64_t kRows>
HWY_INLINE void FillAllRows(const SinusoidBlock& block, typename Format::Element* out,
                            Undecided& undecided) {
  int64_t row = 0;
  for (; row + kRows <= block.rows; row += kRows) {
    FillRows<Format, kStore, kRows>(block, row, out, undecided);
  }
  for (; row < block.rows; ++row) {
    FillRows<Format, kStore, 1>(block, row, out, undecided);
  }
}

template <class Format>
int64_t FillBlock(const SinusoidBlock& original, typename Format::Element* out,
                  uint32_t* indices) noexcept {
  // A copy, so that the compiler knows that no store to `out` changes the block.
  const SinusoidBlock block = original;
  Undecided undecided = {indices, 0};
  // Streaming stores smaller than a cache line must fill each line in order.
  constexpr auto kPairBytes =
      static_cast<int64_t>(2 * hn::MaxLanes(Words()) * sizeof(typename Format::Element));
  constexpr int64_t kStreamedRows = kPairBytes == 64 ? kRowsAtOnce : 1;
  if (block.pair_stride == 1) {
    FillAllRows<Format, PairStore::kApart, kRowsAtOnce>(block, out, undecided);
  } else if (block.stream) {
    FillAllRows<Format, PairStore::kStreamed, kStreamedRows>(block, out, undecided);
  } else {
    FillAllRows<Format, PairStore::kPaired, kRowsAtOnce>(block, out, undecided);
  }
  return undecided.count;
}

// ---------------------------------------------------------------------------
// Rotation in double-double arithmetic

struct Pair {
  DoubleVec hi;
  DoubleVec lo;
};

// Returns the upper half of a mantissa (Veltkamp).
HWY_INLINE DoubleVec UpperHalf(DoubleVec a) {
  const DoubleVec scaled = hn::Mul(a, hn::Set(Doubles(), 0x1p27 + 1));
  return hn::Sub(scaled, hn::Sub(scaled, a));
}

// Returns a * b - product exactly, where `product` is a * b rounded.
HWY_INLINE DoubleVec ProductError(DoubleVec a, DoubleVec b, DoubleVec product) {
#if HWY_NATIVE_FMA
  return hn::MulSub(a, b, product);
#else
  const DoubleVec a_hi = UpperHalf(a);
  const DoubleVec b_hi = UpperHalf(b);
  const DoubleVec a_lo = hn::Sub(a, a_hi);
  const DoubleVec b_lo = hn::Sub(b, b_hi);
  const DoubleVec first = hn::Sub(hn::Mul(a_hi, b_hi), product);
  const DoubleVec second = hn::Add(first, hn::Mul(a_hi, b_lo));
  const DoubleVec third = hn::Add(second, hn::Mul(a_lo, b_hi));
  return hn::Add(third, hn::Mul(a_lo, b_lo));
#endif
}

HWY_INLINE Pair Multiply(Pair a, Pair b) {
  const DoubleVec product = hn::Mul(a.hi, b.hi);
  const DoubleVec error = ProductError(a.hi, b.hi, product);
  return {product, hn::MulAdd(a.hi, b.lo, hn::MulAdd(a.lo, b.hi, error))};
}

HWY_INLINE Pair Sum(Pair a, Pair b) {
  const DoubleVec sum = hn::Add(a.hi, b.hi);
  const DoubleVec b_part = hn::Sub(sum, a.hi);
  const DoubleVec error = hn::Add(hn::Sub(a.hi, hn::Sub(sum, b_part)), hn::Sub(b.hi, b_part));
  const DoubleVec rest = hn::Add(error, hn::Add(a.lo, b.lo));
  const DoubleVec hi = hn::Add(sum, rest);
  return {hi, hn::Sub(rest, hn::Sub(hi, sum))};
}

HWY_INLINE Pair Negated(Pair a) { return {hn::Neg(a.hi), hn::Neg(a.lo)}; }

HWY_INLINE Pair LoadPair(const double* hi, const double* lo, int64_t i) {
  const Doubles d;
  return {hn::Load(d, hi + i), hn::Load(d, lo + i)};
}

HWY_INLINE void StorePair(Pair pair, double* hi, double* lo, int64_t i) {
  const Doubles d;
  hn::Store(pair.hi, d, hi + i);
  hn::Store(pair.lo, d, lo + i);
}

inline void Rotate(const ConstRotors& a, const ConstRotors& b, const Rotors& out,
                   int64_t pairs) noexcept {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Doubles()));
  for (int64_t i = 0; i < pairs; i += lanes) {
    const Pair s0 = LoadPair(a.sin_hi, a.sin_lo, i);
    const Pair c0 = LoadPair(a.cos_hi, a.cos_lo, i);
    const Pair s1 = LoadPair(b.sin_hi, b.sin_lo, i);
    const Pair c1 = LoadPair(b.cos_hi, b.cos_lo, i);
    StorePair(Sum(Multiply(s0, c1), Multiply(c0, s1)), out.sin_hi, out.sin_lo, i);
    StorePair(Sum(Multiply(c0, c1), Negated(Multiply(s0, s1))), out.cos_hi, out.cos_lo, i);
  }
}

// ---------------------------------------------------------------------------
// Copies that bypass the caches

using Bytes = hn::ScalableTag<uint8_t>;

// Uses memcpy for the ends, which do not fill a vector.
inline void StreamBytes(const std::byte* source, std::byte* out, int64_t size) noexcept {
  const Bytes d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  const auto head = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(out) & (step - 1));
  if (step == 1 || size < head + step) {
    std::memcpy(out, source, size);
    return;
  }
  std::memcpy(out, source, head);
  const auto* from = reinterpret_cast<const uint8_t*>(source);
  auto* to = reinterpret_cast<uint8_t*>(out);
  const auto copy = [&](int64_t i) HWY_ATTR { hn::Stream(hn::LoadU(d, from + i), d, to + i); };
  int64_t i = head;
  for (; i + 4 * step <= size; i += 4 * step) {
    copy(i);
    copy(i + step);
    copy(i + 2 * step);
    copy(i + 3 * step);
  }
  for (; i + step <= size; i += step) copy(i);
  std::memcpy(out + i, source + i, size - i);
}

inline void EndStreaming() noexcept { hwy::FlushStream(); }

inline void ExpandRows(const std::byte* source, int64_t source_stride, std::byte* out, int64_t rows,
                       int64_t row_bytes) noexcept {
  const bool stream = rows * row_bytes >= kStreamingBytes;
  for (int64_t row = 0; row < rows; ++row) {
    const std::byte* from = source + row * source_stride;
    std::byte* to = out + row * row_bytes;
    if (stream) {
      StreamBytes(from, to, row_bytes);
    } else {
      std::memcpy(to, from, row_bytes);
    }
  }
  if (stream) EndStreaming();
}

// ---------------------------------------------------------------------------
// Sums of products in a fixed order

// Returns a * b + c, rounded once.
template <class D>
HWY_INLINE hn::Vec<D> Fused(D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c) {
#if HWY_NATIVE_FMA
  (void)d;
  return hn::MulAdd(a, b, c);
#else
  HWY_ALIGN double factors[hn::MaxLanes(d)];
  HWY_ALIGN double others[hn::MaxLanes(d)];
  HWY_ALIGN double sums[hn::MaxLanes(d)];
  hn::Store(a, d, factors);
  hn::Store(b, d, others);
  hn::Store(c, d, sums);
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    sums[i] = std::fma(factors[i], others[i], sums[i]);
  }
  return hn::Load(d, sums);
#endif
}

// Adds products to a few vectors of adjacent sums, which stay in registers across all rows.
template <int64_t kVectors, class D>
HWY_INLINE void AddToSums(D d, const double* factors, const MatrixRows& matrix, double* sums) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<D> sum[kVectors];
  for (int64_t v = 0; v < kVectors; ++v) {
    sum[v] = hn::LoadU(d, sums + v * lanes);
  }
  const double* row = matrix.data;
  for (int64_t k = 0; k < matrix.count; ++k, row += matrix.stride) {
    const hn::Vec<D> factor = hn::Set(d, factors[k]);
    for (int64_t v = 0; v < kVectors; ++v) {
      sum[v] = Fused(d, factor, hn::LoadU(d, row + v * lanes), sum[v]);
    }
  }
  for (int64_t v = 0; v < kVectors; ++v) {
    hn::StoreU(sum[v], d, sums + v * lanes);
  }
}

inline void AddProducts(const double* factors, const MatrixRows& matrix, double* sums,
                        int64_t width) noexcept {
  constexpr int64_t kVectors = 8;
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  MatrixRows rest = matrix;
  int64_t j = 0;
  const auto advance = [&](int64_t count) {
    j += count;
    rest.data += count;
  };
  while (j + kVectors * lanes <= width) {
    AddToSums<kVectors>(d, factors, rest, sums + j);
    advance(kVectors * lanes);
  }
  while (j + lanes <= width) {
    AddToSums<1>(d, factors, rest, sums + j);
    advance(lanes);
  }
  while (j < width) {
    AddToSums<1>(hn::CappedTag<double, 1>(), factors, rest, sums + j);
    advance(1);
  }
}

}  // namespace

constexpr KernelSet MakeKernelSet(std::string_view name) {
  return {name,       FillBlock<F32Format>, FillBlock<Bf16Format>, FillBlock<F16Format>,
          Rotate,     StreamBytes,          EndStreaming,          ExpandRows,
          AddProducts};
}

}  // namespace HWY_NAMESPACE
}  // namespace attnbias
HWY_AFTER_NAMESPACE();

#endif  // ATTNBIAS_CORE_KERNEL_CPU_KERNELS_INL_H_
