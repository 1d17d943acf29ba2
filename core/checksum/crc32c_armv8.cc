// SPDX-License-Identifier: Apache-2.0
// CRC-32C with the CRC extension of ARMv8.
#if defined(__aarch64__)

#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "core/checksum/crc32c_lanes.h"
#include "core/checksum/implementations.h"

namespace attnbias::crc32c_internal {
namespace {

// Assembly rather than the intrinsic, which could not be inlined into a
// template that is compiled for every CPU.
inline uint32_t Step(uint32_t crc, uint64_t word) {
  asm(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
  return crc;
}

inline uint32_t StepByte(uint32_t crc, uint8_t byte) {
  asm(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1"
      : "+r"(crc)
      : "r"(uint32_t{byte}));
  return crc;
}

}  // namespace

const Crc32cImplementation kArmv8 = {
    "armv8", [] { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; },
    &ExtendByInstruction<Step, StepByte>};

}  // namespace attnbias::crc32c_internal

#endif  // defined(__aarch64__)
