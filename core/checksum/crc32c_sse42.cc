// SPDX-License-Identifier: Apache-2.0
// CRC-32C with the crc32 instruction of SSE4.2.
#if defined(__x86_64__)

#include "core/checksum/crc32c_lanes.h"
#include "core/checksum/implementations.h"

namespace attnbias::crc32c_internal {
namespace {

// Assembly rather than the intrinsic, which could not be inlined into a
// template that is compiled for every CPU.
inline uint32_t Step(uint32_t crc, uint64_t word) {
  uint64_t wide = crc;
  asm("crc32q %1, %0" : "+r"(wide) : "rm"(word));
  return static_cast<uint32_t>(wide);
}

inline uint32_t StepByte(uint32_t crc, uint8_t byte) {
  asm("crc32b %1, %0" : "+r"(crc) : "rm"(byte));
  return crc;
}

}  // namespace

const Crc32cImplementation kSse42 = {
    "sse4.2", [] { return __builtin_cpu_supports("sse4.2") != 0; },
    &ExtendByInstruction<Step, StepByte>};

}  // namespace attnbias::crc32c_internal

#endif  // defined(__x86_64__)
