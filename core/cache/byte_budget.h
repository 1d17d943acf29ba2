// SPDX-License-Identifier: Apache-2.0
// Counts the bytes of everything that is computed, cached or in flight.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/base/executor.h"
#include "core/base/mutex.h"

namespace attnbias {

// Thread-safe. Outlives its reservations.
class ByteBudget {
 private:
  // Bytes by owner.
  using Holdings = std::unordered_map<std::string, int64_t>;

  // Deleter that returns bytes to the budget.
  struct Held {
    // Null for bytes set aside.
    Holdings::value_type* owner;
    int64_t bytes;

    void operator()(ByteBudget* budget) const { budget->Release(*this); }
  };

 public:
  using Clock = std::chrono::steady_clock;

  // Time for which a rejected client counts as waiting; clients retry within this time.
  static constexpr std::chrono::seconds kWait{3};

  // Holds part of the budget while it lives.
  class [[nodiscard]] Reservation {
   public:
    Reservation() = default;

    // Returns the owner's name. The reservation must be neither empty nor set aside.
    const std::string& owner() const { return budget_.get_deleter().owner->first; }

    // Lowers the limit by these bytes until they are released, because they belong to something
    // that is never evicted. Does nothing if the reservation is empty.
    void SetAside() {
      if (budget_ != nullptr) budget_->SetAside(budget_.get_deleter());
    }

   private:
    friend class ByteBudget;
    Reservation(ByteBudget* budget, Held held) : budget_(budget, held) {}

    std::unique_ptr<ByteBudget, Held> budget_;
  };

  explicit ByteBudget(int64_t limit_bytes) : limit_(limit_bytes) {}

  // Returns the limit minus the bytes set aside.
  int64_t limit() const {
    MutexLock lock(mutex_);
    return limit_;
  }
  int64_t used() const {
    MutexLock lock(mutex_);
    return used_;
  }

  // Reserves `bytes`, at least 1. Returns nothing if they do not fit into the budget or would
  // exceed `owner`'s maximum.
  std::optional<Reservation> Reserve(int64_t bytes, const QuotaOwner& owner);

  bool WouldExceedOwnLimit(int64_t bytes, const QuotaOwner& owner) const;

  // Records that `owner` was rejected. The owner then counts as waiting, unless it wants more than
  // its share.
  void Refused(int64_t bytes, const QuotaOwner& owner);

  // Returns true if a client is waiting and `owner`, with `bytes` more, would hold more than its
  // share: the budget divided by one more than the number of owners that hold reservations.
  bool WouldExceedFairShare(int64_t bytes, const QuotaOwner& owner) const;

 private:
  int64_t HeldLocked(const QuotaOwner& owner) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsWithinShareLocked(int64_t more, const QuotaOwner& owner) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(const Held& held);
  void ReleaseLocked(const Held& held) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetAside(Held& held);

  mutable Mutex mutex_;
  int64_t limit_ ABSL_GUARDED_BY(mutex_);
  int64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  Holdings holdings_ ABSL_GUARDED_BY(mutex_);
  // Read outside the lock, since every call reads it and clients rarely wait.
  std::atomic<Clock::time_point> waits_until_{};
};

// Owns uninitialized bytes aligned to a cache line.
class AlignedBuffer {
 public:
  static constexpr int64_t kAlignment = 64;

  AlignedBuffer() = default;
  // data() is null if the system is out of memory.
  explicit AlignedBuffer(int64_t size)
      : data_(static_cast<std::byte*>(
            std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment))),
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

// Memory that counts against a budget while it lives.
struct BudgetedBuffer {
  ByteBudget::Reservation reservation;
  AlignedBuffer bytes;
};

}  // namespace attnbias
