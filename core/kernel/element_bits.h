// SPDX-License-Identifier: Apache-2.0
// Rounds doubles and intervals to the bits of an element: every element on a CUDA device, and the
// elements that a CPU's vectors leave undecided.
#pragma once

#include <bit>
#include <cstdint>

#include "core/numerics/narrow.h"

// Marks functions that run on the CPU and on a CUDA device.
#ifdef __CUDACC__
#define ATTNBIAS_HOST_DEVICE __host__ __device__
#else
#define ATTNBIAS_HOST_DEVICE
#endif

namespace attnbias {

struct F32Element {
  using Bits = uint32_t;
  static ATTNBIAS_HOST_DEVICE Bits Of(double value) {
    return std::bit_cast<uint32_t>(static_cast<float>(value));
  }
};

template <NarrowFormat kFormat>
struct Element16 {
  using Bits = uint16_t;
  static ATTNBIAS_HOST_DEVICE Bits Of(double value) {
    return static_cast<uint16_t>(Narrow(value, kFormat));
  }
};
using Bf16Element = Element16<kBfloat16>;
using F16Element = Element16<kBinary16>;

// Sets `bits` to the one element to which every number in [high - width, high] rounds, and returns
// true. Returns false if there are several.
template <class Element>
ATTNBIAS_HOST_DEVICE bool RoundInterval(double high, double width, typename Element::Bits* bits) {
  *bits = Element::Of(high);
  return *bits == Element::Of(high - width);
}

}  // namespace attnbias
