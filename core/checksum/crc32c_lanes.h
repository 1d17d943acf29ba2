// SPDX-License-Identifier: Apache-2.0
// CRC-32C with a CPU's own CRC instruction, three lanes at a time: the
// instruction takes three cycles but one can start in each.
#ifndef ATTNBIAS_CORE_CHECKSUM_CRC32C_LANES_H_
#define ATTNBIAS_CORE_CHECKSUM_CRC32C_LANES_H_

#include <cstring>

#include "core/checksum/crc32c.h"

namespace attnbias::crc32c_internal {

// Large enough that joining the lanes costs nothing, small enough for a cache.
inline constexpr Crc32cShift kLongLane(4096);
inline constexpr Crc32cShift kShortLane(256);

inline uint64_t LoadWord(const uint8_t* data) {
  uint64_t word;
  std::memcpy(&word, data, 8);
  return word;
}

// Takes groups of three lanes of `lane_size` bytes off the front of the data.
// `Step(register, word)` is the instruction.
template <auto Step>
uint32_t ExtendThreeLanes(uint32_t crc, const uint8_t*& data, size_t& size,
                          size_t lane_size, const Crc32cShift& lane) {
  while (size >= 3 * lane_size) {
    uint32_t second = 0;
    uint32_t third = 0;
    for (size_t at = 0; at < lane_size; at += 8) {
      crc = Step(crc, LoadWord(data + at));
      second = Step(second, LoadWord(data + lane_size + at));
      third = Step(third, LoadWord(data + 2 * lane_size + at));
    }
    crc = lane.Combine(lane.Combine(crc, second), third);
    data += 3 * lane_size;
    size -= 3 * lane_size;
  }
  return crc;
}

// `StepByte(register, byte)` is the instruction's form for one byte.
template <auto Step, auto StepByte>
uint32_t ExtendByInstruction(uint32_t crc, const uint8_t* data, size_t size) {
  crc = ~crc;
  crc = ExtendThreeLanes<Step>(crc, data, size, 4096, kLongLane);
  crc = ExtendThreeLanes<Step>(crc, data, size, 256, kShortLane);
  for (; size >= 8; data += 8, size -= 8) crc = Step(crc, LoadWord(data));
  for (; size > 0; ++data, --size) crc = StepByte(crc, *data);
  return ~crc;
}

}  // namespace attnbias::crc32c_internal

#endif  // ATTNBIAS_CORE_CHECKSUM_CRC32C_LANES_H_
