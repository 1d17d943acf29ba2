// SPDX-License-Identifier: Apache-2.0
// A flag by which whoever waits tells whoever computes to stop.
#ifndef ATTNBIAS_CORE_BASE_CANCELLATION_H_
#define ATTNBIAS_CORE_BASE_CANCELLATION_H_

#include <atomic>
#include <memory>

namespace attnbias {

// Set once by whoever no longer wants a result, polled by whoever computes it.
class Cancellation {
 public:
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_{false};
};

using CancellationPtr = std::shared_ptr<Cancellation>;

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_BASE_CANCELLATION_H_
