// SPDX-License-Identifier: Apache-2.0
// The implementations behind crc32c.h, one file each.
#ifndef ATTNBIAS_CORE_CHECKSUM_IMPLEMENTATIONS_H_
#define ATTNBIAS_CORE_CHECKSUM_IMPLEMENTATIONS_H_

#include "core/checksum/crc32c.h"

namespace attnbias::crc32c_internal {

extern const Crc32cImplementation kTable;
extern const Crc32cImplementation kSse42;       // x86-64 only
extern const Crc32cImplementation kVpclmulqdq;  // x86-64 only
extern const Crc32cImplementation kArmv8;       // AArch64 only

}  // namespace attnbias::crc32c_internal

#endif  // ATTNBIAS_CORE_CHECKSUM_IMPLEMENTATIONS_H_
