// SPDX-License-Identifier: Apache-2.0
// A band: an encoding's numbers over a span of coordinates, for all its lanes.
// It is what the cache keeps and what payloads are slices of.
#ifndef ATTNBIAS_CORE_CACHE_BAND_H_
#define ATTNBIAS_CORE_CACHE_BAND_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "core/cache/byte_budget.h"
#include "core/tensor/range.h"

namespace attnbias {

// Owned bytes on a cache line's border, not initialised.
class AlignedBuffer {
 public:
  static constexpr int64_t kAlignment = 64;

  AlignedBuffer() = default;
  // data() is null when the system has no such memory.
  explicit AlignedBuffer(int64_t size)
      : data_(static_cast<std::byte*>(std::aligned_alloc(
            kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment))),
        size_(size) {}

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };

  std::unique_ptr<std::byte[], Free> data_;
  int64_t size_ = 0;
};

// Memory that counts against a budget for as long as it lives.
struct BudgetedBuffer {
  ByteBudget::Reservation reservation;
  AlignedBuffer bytes;
};

// Row-major [lanes, span, coordinate_bytes], immutable once published.
struct Band {
  Range span;
  int64_t lanes = 0;
  // Bytes of one lane at one coordinate.
  int64_t coordinate_bytes = 0;
  BudgetedBuffer buffer;
  // What the cache takes to keep it.
  int64_t entry_bytes = 0;
  ByteBudget::Reservation entry_memory;

  int64_t size_bytes() const { return buffer.bytes.size(); }
  int64_t budget_bytes() const { return size_bytes() + entry_bytes; }
  int64_t lane_bytes() const { return span.size() * coordinate_bytes; }
  const std::byte* At(int64_t lane, int64_t coordinate) const {
    return buffer.bytes.data() + lane * lane_bytes() +
           (coordinate - span.begin) * coordinate_bytes;
  }
};

using BandPtr = std::shared_ptr<const Band>;

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_CACHE_BAND_H_
