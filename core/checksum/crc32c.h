// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli; RFC 3720 appendix B.4) and the algebra that combines
// checksums of neighbouring bytes.
//
//   uint32_t whole = Crc32c(data, size);
//   uint32_t same = ExtendCrc32c(Crc32c(data, 10), data + 10, size - 10);
//
// The CRC of a slice, in constant time, out of CRCs of prefixes:
//
//   const Crc32cShift row(row_bytes);  // once
//   uint32_t slice = prefix[end] ^ row(prefix[end - row_bytes]);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace attnbias {

// Checksum of `size` bytes; of none, 0. Any alignment, any thread.
uint32_t Crc32c(const void* data, size_t size);

// Checksum of the bytes behind `crc` followed by `size` bytes more.
uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t size);

// What `size` zero bytes do to a checksum, a linear map over GF(2). Making one
// costs about a microsecond, applying it four table lookups. Immutable.
class Crc32cShift {
 public:
  constexpr explicit Crc32cShift(uint64_t size);

  constexpr uint32_t operator()(uint32_t crc) const {
    return tables_[0][crc & 0xff] ^ tables_[1][(crc >> 8) & 0xff] ^
           tables_[2][(crc >> 16) & 0xff] ^ tables_[3][crc >> 24];
  }

  // Checksum of A followed by B, where B has this shift's size.
  constexpr uint32_t Combine(uint32_t crc_a, uint32_t crc_b) const {
    return (*this)(crc_a) ^ crc_b;
  }

 private:
  std::array<std::array<uint32_t, 256>, 4> tables_{};
};

// Polynomials over GF(2) of degree below 32, modulo the Castagnoli polynomial;
// bit 31 is the coefficient of x^0.
namespace crc32c_internal {

inline constexpr uint32_t kPolynomial = 0x82f63b78;

constexpr uint32_t TimesX(uint32_t a) {
  return (a & 1) != 0 ? (a >> 1) ^ kPolynomial : a >> 1;
}

constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = uint32_t{1} << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = TimesX(b);
  }
  return product;
}

constexpr uint32_t PowerOfX(uint64_t exponent) {
  uint32_t power = uint32_t{1} << 31;   // x^0
  uint32_t square = uint32_t{1} << 30;  // x^1
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) power = Multiply(power, square);
    square = Multiply(square, square);
  }
  return power;
}

}  // namespace crc32c_internal

constexpr Crc32cShift::Crc32cShift(uint64_t size) {
  // x^(8 size), without overflow of 8 size.
  uint32_t factor = crc32c_internal::PowerOfX(size);
  for (int i = 0; i < 3; ++i)
    factor = crc32c_internal::Multiply(factor, factor);
  for (int bit = 31; bit >= 0; --bit) {
    tables_[bit / 8][size_t{1} << (bit % 8)] = factor;
    factor = crc32c_internal::TimesX(factor);
  }
  for (auto& table : tables_) {
    for (size_t byte = 1; byte < 256; ++byte) {
      const size_t lowest = byte & (~byte + 1);
      table[byte] = table[lowest] ^ table[byte ^ lowest];
    }
  }
}

}  // namespace attnbias
