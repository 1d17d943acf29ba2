// SPDX-License-Identifier: Apache-2.0
// Chooses the implementation.
#include "core/checksum/crc32c.h"

#include <algorithm>

#include "core/checksum/implementations.h"

namespace attnbias {

std::span<const Crc32cImplementation> AllCrc32cImplementations() {
  static const Crc32cImplementation all[] = {
#if defined(__x86_64__)
    crc32c_internal::kVpclmulqdq,
    crc32c_internal::kSse42,
#elif defined(__aarch64__)
    crc32c_internal::kArmv8,
#endif
    crc32c_internal::kTable,
  };
  return all;
}

uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t size) {
  static const auto extend =
      std::ranges::find_if(AllCrc32cImplementations(), [](const auto& i) {
        return i.supported();
      })->extend;
  return extend(crc, static_cast<const uint8_t*>(data), size);
}

uint32_t Crc32c(const void* data, size_t size) {
  return ExtendCrc32c(0, data, size);
}

}  // namespace attnbias
