// SPDX-License-Identifier: Apache-2.0
#include "core/checksum/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <bit>

namespace attnbias {
namespace {

// Polynomials over GF(2) of degree below 32, modulo the Castagnoli polynomial; bit 31 is the
// coefficient of x^0.
uint32_t TimesX(uint32_t a) { return (a & 1) != 0 ? (a >> 1) ^ 0x82f63b78 : a >> 1; }

uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = uint32_t{1} << 31; bit != 0; bit >>= 1, b = TimesX(b)) {
    if ((a & bit) != 0) product ^= b;
  }
  return product;
}

}  // namespace

uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t size) {
  // The library takes sizes as ints.
  constexpr size_t kMostAtOnce = size_t{1} << 30;
  auto* at = static_cast<unsigned char*>(const_cast<void*>(data));
  uint32_t state = ~crc;
  while (size > 0) {
    const size_t now = std::min(size, kMostAtOnce);
    state = crc32_iscsi(at, static_cast<int>(now), state);
    at += now;
    size -= now;
  }
  return ~state;
}

Crc32cShift::Crc32cShift(uint64_t size) {
  // x^(8 size), computed by squaring.
  uint32_t factor = uint32_t{1} << 31;
  for (int bit = static_cast<int>(std::bit_width(size)); bit-- > 0;) {
    factor = Multiply(factor, factor);
    for (int i = 0; i < 8 && (size >> bit & 1) != 0; ++i) factor = TimesX(factor);
  }
  for (int bit = 31; bit >= 0; --bit) {
    tables_[bit / 8][size_t{1} << (bit % 8)] = factor;
    factor = TimesX(factor);
  }
  for (auto& table : tables_) {
    for (size_t byte = 1; byte < 256; ++byte) {
      const size_t lowest = byte & (~byte + 1);
      table[byte] = table[lowest] ^ table[byte ^ lowest];
    }
  }
}

}  // namespace attnbias
