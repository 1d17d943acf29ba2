// SPDX-License-Identifier: Apache-2.0
// CRC-32C by carry-less multiplication, 256 bytes at a time, in AVX-512.
//
// A register holds a polynomial, its first bit the highest power. Replacing it
// by anything equal to it times x^n modulo the CRC's polynomial lets it be
// added (xor) to the bytes n bits further on; at the end 16 bytes are left,
// whose CRC is that of all.
#if defined(__x86_64__)

#include <immintrin.h>

#include "core/checksum/implementations.h"

namespace attnbias::crc32c_internal {
namespace {

#define ATTNBIAS_VPCLMULQDQ \
  __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2")))

// Factors that move 128 bits `bits` further: one for the earlier half, which
// stands 64 bits higher, one for the later. Multiplying two reversed
// polynomials gives their product times x: hence the -1.
struct Fold {
  constexpr explicit Fold(uint64_t bits)
      : earlier(uint64_t{PowerOfX(bits + 64 - 1)} << 32),
        later(uint64_t{PowerOfX(bits - 1)} << 32) {}
  uint64_t earlier;
  uint64_t later;
};

constexpr Fold kBy2048(2048);
constexpr Fold kBy512(512);
constexpr Fold kBy384(384);
constexpr Fold kBy256(256);
constexpr Fold kBy128(128);

ATTNBIAS_VPCLMULQDQ inline __m512i Wide(const Fold& fold) {
  const auto earlier = static_cast<int64_t>(fold.earlier);
  const auto later = static_cast<int64_t>(fold.later);
  return _mm512_set4_epi64(later, earlier, later, earlier);
}

// `value` moved by the distance of `factors`, plus `next`.
ATTNBIAS_VPCLMULQDQ inline __m512i FoldInto(__m512i value, __m512i factors,
                                            __m512i next) {
  const __m512i earlier = _mm512_clmulepi64_epi128(value, factors, 0x00);
  const __m512i later = _mm512_clmulepi64_epi128(value, factors, 0x11);
  return _mm512_ternarylogic_epi64(earlier, later, next, 0x96);  // xor of three
}

ATTNBIAS_VPCLMULQDQ inline __m128i Move(__m128i value, const Fold& fold) {
  const __m128i factors = _mm_set_epi64x(static_cast<int64_t>(fold.later),
                                         static_cast<int64_t>(fold.earlier));
  return _mm_xor_si128(_mm_clmulepi64_si128(value, factors, 0x00),
                       _mm_clmulepi64_si128(value, factors, 0x11));
}

// CRC register after the 64 bytes that `value` stands for.
ATTNBIAS_VPCLMULQDQ inline uint32_t Reduce(__m512i value) {
  alignas(64) __m128i quarters[4];
  _mm512_store_si512(quarters, value);
  const __m128i sum = _mm_xor_si128(
      _mm_xor_si128(Move(quarters[0], kBy384), Move(quarters[1], kBy256)),
      _mm_xor_si128(Move(quarters[2], kBy128), quarters[3]));
  const uint64_t crc =
      _mm_crc32_u64(0, static_cast<uint64_t>(_mm_extract_epi64(sum, 0)));
  return static_cast<uint32_t>(
      _mm_crc32_u64(crc, static_cast<uint64_t>(_mm_extract_epi64(sum, 1))));
}

// Takes whole multiples of 64 bytes, at least 256, off the front of the data.
ATTNBIAS_VPCLMULQDQ uint32_t ExtendBlocks(uint32_t crc, const uint8_t*& data,
                                          size_t& size) {
  __m512i lanes[4];
  for (ptrdiff_t i = 0; i < 4; ++i) {
    lanes[i] = _mm512_loadu_si512(data + 64 * i);
  }
  lanes[0] = _mm512_xor_si512(
      lanes[0],
      _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  data += 256;
  size -= 256;
  const __m512i by2048 = Wide(kBy2048);
  for (; size >= 256; data += 256, size -= 256) {
    for (ptrdiff_t i = 0; i < 4; ++i) {
      lanes[i] = FoldInto(lanes[i], by2048, _mm512_loadu_si512(data + 64 * i));
    }
  }
  const __m512i by512 = Wide(kBy512);
  __m512i sum = lanes[0];
  for (int i = 1; i < 4; ++i) sum = FoldInto(sum, by512, lanes[i]);
  for (; size >= 64; data += 64, size -= 64) {
    sum = FoldInto(sum, by512, _mm512_loadu_si512(data));
  }
  return Reduce(sum);
}

ATTNBIAS_VPCLMULQDQ uint32_t Extend(uint32_t crc, const uint8_t* data,
                                    size_t size) {
  if (size >= 256) crc = ~ExtendBlocks(~crc, data, size);
  return kSse42.extend(crc, data, size);
}

bool Supported() {
  return __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("vpclmulqdq") != 0 &&
         __builtin_cpu_supports("pclmul") != 0 &&
         __builtin_cpu_supports("sse4.2") != 0;
}

}  // namespace

const Crc32cImplementation kVpclmulqdq = {"vpclmulqdq", &Supported, &Extend};

}  // namespace attnbias::crc32c_internal

#endif  // defined(__x86_64__)
