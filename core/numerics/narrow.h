// SPDX-License-Identifier: Apache-2.0
// Rounds a double to the bits of a narrower binary format, to nearest even, with integer arithmetic
// only. Uses only std, since kernels include it.
#pragma once

#include <bit>
#include <cstdint>

namespace attnbias {

struct NarrowFormat {
  int mantissa_bits;  // without the hidden bit
  int exponent_bits;
};

inline constexpr NarrowFormat kBinary32 = {23, 8};
inline constexpr NarrowFormat kBinary16 = {10, 5};
inline constexpr NarrowFormat kBfloat16 = {7, 8};

// Returns value >> shift, rounded to nearest even; 0 < shift < 64.
constexpr uint64_t ShiftRounding(uint64_t value, int shift) {
  const uint64_t odd = (value >> shift) & 1;
  return (value + (uint64_t{1} << (shift - 1)) - 1 + odd) >> shift;
}

// Rounds mantissa and exponent as one integer, so that a carry moves into the next binade or to
// infinity.
constexpr uint32_t Narrow(double value, NarrowFormat format) {
  const auto bits = std::bit_cast<uint64_t>(value);
  const int width = format.mantissa_bits + format.exponent_bits;
  const uint64_t sign = (bits >> 63) << width;
  const uint64_t infinity = ((uint64_t{1} << format.exponent_bits) - 1) << format.mantissa_bits;
  const uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  const int exponent = static_cast<int>((bits >> 52) & 0x7FF);
  if (exponent == 0x7FF) {
    const uint64_t quiet = uint64_t{1} << (format.mantissa_bits - 1);
    return static_cast<uint32_t>(sign | infinity | (mantissa != 0 ? quiet : 0));
  }
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int target = exponent - (1023 - bias);
  const int shift = 52 - format.mantissa_bits;
  if (target >= 1 << format.exponent_bits) {
    return static_cast<uint32_t>(sign | infinity);
  }
  if (target >= 1) {
    const uint64_t rounded = ShiftRounding(static_cast<uint64_t>(target) << 52 | mantissa, shift);
    return static_cast<uint32_t>(sign | (rounded < infinity ? rounded : infinity));
  }
  // Subnormal; a magnitude below half the minimum becomes zero.
  const int subnormal_shift = shift + 1 - target;
  if (exponent == 0 || subnormal_shift > 54) {
    return static_cast<uint32_t>(sign);
  }
  return static_cast<uint32_t>(sign | ShiftRounding(uint64_t{1} << 52 | mantissa, subnormal_shift));
}

struct F64Element {
  using Bits = uint64_t;
  static Bits Of(double value) { return std::bit_cast<uint64_t>(value); }
};

struct F32Element {
  using Bits = uint32_t;
  static Bits Of(double value) { return std::bit_cast<uint32_t>(static_cast<float>(value)); }
};

template <NarrowFormat kFormat>
struct Element16 {
  using Bits = uint16_t;
  static Bits Of(double value) { return static_cast<uint16_t>(Narrow(value, kFormat)); }
};
using Bf16Element = Element16<kBfloat16>;
using F16Element = Element16<kBinary16>;

// Sets `bits` to the one element to which every number in [high - width, high] rounds, and returns
// true. Returns false if several elements are possible.
template <class Element>
bool RoundInterval(double high, double width, typename Element::Bits* bits) {
  *bits = Element::Of(high);
  return *bits == Element::Of(high - width);
}

}  // namespace attnbias
