// SPDX-License-Identifier: Apache-2.0
// Owns rows of rotors: for each row, the sine and cosine of one angle per column pair, in the
// layout that kernels read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "core/base/executor.h"
#include "core/encoding/sinusoid/sinusoid.h"
#include "core/kernel/kernel_set.h"
#include "core/numerics/revolutions.h"

namespace attnbias {

// Aligns a vector's elements to a cache line.
template <typename T>
struct CacheLineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kAlignment{64};

  CacheLineAllocator() = default;
  template <typename U>
  explicit CacheLineAllocator(const CacheLineAllocator<U>&) {}

  T* allocate(size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kAlignment));
  }
  void deallocate(T* data, size_t) { ::operator delete(data, kAlignment); }
  friend bool operator==(CacheLineAllocator, CacheLineAllocator) = default;
};

using AlignedDoubles = std::vector<double, CacheLineAllocator<double>>;

// Returns the pairs of a row of frequencies, including padding.
constexpr int64_t PaddedPairs(int64_t frequencies) {
  return (frequencies + kPairMultiple - 1) / kPairMultiple * kPairMultiple;
}

class RotorRows {
 public:
  // `pairs` is a multiple of kPairMultiple.
  RotorRows(int64_t rows, int64_t pairs)
      : pairs_(pairs), size_(rows * pairs), numbers_(4 * size_) {}

  int64_t pairs() const { return pairs_; }

  Rotors Row(int64_t row) {
    double* const at = numbers_.data() + row * pairs_;
    return {at, at + size_, at + 2 * size_, at + 3 * size_};
  }
  ConstRotors Row(int64_t row) const {
    const double* const at = numbers_.data() + row * pairs_;
    return {at, at + size_, at + 2 * size_, at + 3 * size_};
  }

 private:
  int64_t pairs_;
  int64_t size_;
  // Upper halves of the sines, their lower halves, then the same for the cosines: [rows, pairs]
  // each.
  AlignedDoubles numbers_;
};

// Sets the angles at position + rest, each computed independently. The pairs after the frequencies
// are padding and do not rotate.
inline void SetAngles(const std::vector<SinusoidFrequency>& frequencies, int64_t position,
                      int64_t pairs, const Rotors& out, double rest = 0) {
  const auto used = static_cast<int64_t>(frequencies.size());
  for (int64_t i = 0; i < pairs; ++i) {
    if (!ComputeScope::Continues()) return;
    SinCos value = {{0, 0}, {1, 0}, 0};
    if (i < used && (position != 0 || rest != 0)) {
      value = SinCosOf(AngleAt(frequencies[i], position, rest));
    }
    out.sin_hi[i] = value.sin.hi;
    out.sin_lo[i] = value.sin.lo;
    out.cos_hi[i] = value.cos.hi;
    out.cos_lo[i] = value.cos.lo;
  }
}

}  // namespace attnbias
