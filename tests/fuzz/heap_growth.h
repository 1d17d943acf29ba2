// SPDX-License-Identifier: Apache-2.0
// Measures the peak memory that a piece of work uses on top of the memory in use before it.
#pragma once

#include <cstdint>

namespace attnbias {

// Counts the memory that this thread allocates and frees during this object's lifetime, with
// AddressSanitizer's hooks. Only one may exist at a time.
class HeapGrowth {
 public:
  HeapGrowth();
  ~HeapGrowth();
  HeapGrowth(const HeapGrowth&) = delete;
  HeapGrowth& operator=(const HeapGrowth&) = delete;

  // Aborts (which the fuzzer reports) if more than `fixed` bytes plus `per_byte` for each of
  // `input_bytes` were in use at any time.
  void ExpectAtMost(int64_t fixed, int64_t per_byte, int64_t input_bytes) const;
};

}  // namespace attnbias
