// SPDX-License-Identifier: Apache-2.0
#include "core/checksum/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace attnbias {

// Sizes of the library are ints.
constexpr size_t kMostAtOnce = size_t{1} << 30;

uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t size) {
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

uint32_t Crc32c(const void* data, size_t size) {
  return ExtendCrc32c(0, data, size);
}

}  // namespace attnbias
