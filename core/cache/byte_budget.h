// SPDX-License-Identifier: Apache-2.0
// One count of bytes over everything computed, cached or in flight.
#ifndef ATTNBIAS_CORE_CACHE_BYTE_BUDGET_H_
#define ATTNBIAS_CORE_CACHE_BYTE_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

namespace attnbias {

// Safe for any number of threads. Outlives its reservations.
class ByteBudget {
 public:
  // Bytes that are given back when this object goes.
  class [[nodiscard]] Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)),
          bytes_(other.bytes_) {}
    Reservation& operator=(Reservation&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Reservation() {
      if (budget_ != nullptr) budget_->used_ -= bytes_;
    }

   private:
    friend class ByteBudget;
    Reservation(ByteBudget* budget, int64_t bytes)
        : budget_(budget), bytes_(bytes) {}

    ByteBudget* budget_ = nullptr;
    int64_t bytes_ = 0;
  };

  explicit ByteBudget(int64_t limit_bytes) : limit_(limit_bytes) {}

  int64_t limit() const { return limit_; }
  int64_t used() const { return used_; }

  // Empty when `bytes` more do not fit.
  std::optional<Reservation> Reserve(int64_t bytes) {
    int64_t used = used_;
    do {
      if (bytes > limit_ - used) return std::nullopt;
    } while (!used_.compare_exchange_weak(used, used + bytes));
    return Reservation(this, bytes);
  }

 private:
  const int64_t limit_;
  std::atomic<int64_t> used_{0};
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_CACHE_BYTE_BUDGET_H_
