// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli; RFC 3720 appendix B.4) and the algebra that combines checksums of
// neighboring bytes.
//
//   uint32_t whole = Crc32c(data, size);
//   uint32_t same = ExtendCrc32c(Crc32c(data, 10), data + 10, size - 10);
//
// The CRC of a slice, in constant time, from CRCs of prefixes:
//
//   const Crc32cShift row(row_bytes);  // once
//   uint32_t slice = prefix[end] ^ row(prefix[end - row_bytes]);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace attnbias {

// Returns the checksum of the bytes covered by `crc` followed by `size` more bytes, at any
// alignment.
uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t size);

// Returns the checksum of `size` bytes; 0 if `size` is 0.
inline uint32_t Crc32c(const void* data, size_t size) { return ExtendCrc32c(0, data, size); }

// A linear map over GF(2). Maps the checksum of some bytes to the checksum of the same bytes
// followed by `size` zero bytes, minus the checksum of those zeros. Constructing one costs about a
// microsecond, applying it four table lookups. Immutable.
class Crc32cShift {
 public:
  explicit Crc32cShift(uint64_t size);

  uint32_t operator()(uint32_t crc) const {
    return tables_[0][crc & 0xff] ^ tables_[1][(crc >> 8) & 0xff] ^ tables_[2][(crc >> 16) & 0xff] ^
           tables_[3][crc >> 24];
  }

  // Returns the checksum of A followed by B, where B's length is this shift's size.
  uint32_t Combine(uint32_t crc_a, uint32_t crc_b) const { return (*this)(crc_a) ^ crc_b; }

 private:
  std::array<std::array<uint32_t, 256>, 4> tables_{};
};

}  // namespace attnbias
