// SPDX-License-Identifier: Apache-2.0
// CRC-32C by tables, eight bytes at a time, for any CPU.
#include <bit>
#include <cstring>

#include "core/checksum/implementations.h"

namespace attnbias::crc32c_internal {
namespace {

static_assert(std::endian::native == std::endian::little);

// kTables[k][b] is what byte b does to the register when k bytes follow it.
constexpr auto kTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = TimesX(crc);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t crc = tables[k - 1][byte];
      tables[k][byte] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  }
  return tables;
}();

uint32_t Extend(uint32_t crc, const uint8_t* data, size_t size) {
  crc = ~crc;
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    word ^= crc;
    crc = 0;
    for (int k = 0; k < 8; ++k) {
      crc ^= kTables[7 - k][(word >> (8 * k)) & 0xff];
    }
  }
  for (; size > 0; ++data, --size) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ *data) & 0xff];
  }
  return ~crc;
}

}  // namespace

const Crc32cImplementation kTable = {"table", [] { return true; }, &Extend};

}  // namespace attnbias::crc32c_internal
