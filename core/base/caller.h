// SPDX-License-Identifier: Apache-2.0
// The caller that wants a result, and the client that is charged for it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

namespace attnbias {

// A client, which is charged for the time and memory of all its calls.
struct QuotaOwner {
  std::string name;
  // Maximum bytes of all its calls together.
  int64_t max_bytes = std::numeric_limits<int64_t>::max();
};

// A call that waits for a result. Long computations poll cancelled().
class Caller {
 public:
  explicit Caller(std::string owner = "") : owner_{std::move(owner)} {}
  explicit Caller(QuotaOwner owner) : owner_(std::move(owner)) {}
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  const QuotaOwner& owner() const { return owner_; }

  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  // Adds to the time that threads have spent on this call.
  void Use(std::chrono::nanoseconds time) { used_ += time.count(); }
  std::chrono::nanoseconds used() const { return std::chrono::nanoseconds(used_); }

 private:
  const QuotaOwner owner_;
  std::atomic<bool> cancelled_{false};
  std::atomic<int64_t> used_{0};
};

using CallerPtr = std::shared_ptr<Caller>;

}  // namespace attnbias
