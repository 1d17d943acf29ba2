// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/streaming_copy.h"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>

#include <algorithm>
#include <cstdint>

namespace attnbias {
namespace {

constexpr size_t kLine = 64;

void StreamLine(std::byte* to, const std::byte* from) {
  for (size_t at = 0; at < kLine; at += sizeof(__m128i)) {
    _mm_stream_si128(
        reinterpret_cast<__m128i*>(to + at),
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
}

}  // namespace

void StreamingCopy(std::byte* to, const std::byte* from, size_t size) {
  const size_t past_line = reinterpret_cast<uintptr_t>(to) % kLine;
  const size_t head = std::min(size, (kLine - past_line) % kLine);
  std::memcpy(to, from, head);
  size_t at = head;
  for (; size - at >= kLine; at += kLine) StreamLine(to + at, from + at);
  std::memcpy(to + at, from + at, size - at);
  _mm_sfence();
}

}  // namespace attnbias

#else

namespace attnbias {

void StreamingCopy(std::byte* to, const std::byte* from, size_t size) {
  std::memcpy(to, from, size);
}

}  // namespace attnbias

#endif
