// SPDX-License-Identifier: Apache-2.0
// Closes calls that would not end on their own. A call whose client has stopped reading or sending
// is closed with ABORTED. A client that has stopped reading gets less time if other callers are
// waiting for its memory. A drain first closes the calls that are waiting for their client to send,
// and finally all calls.
//
// Such calls hold memory: a write that makes no progress holds its tensor, and an idle
// ComputeLogits call holds its spec and, until they are evicted, its vectors.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "core/base/executor.h"
#include "core/base/mutex.h"
#include "core/cache/byte_budget.h"
#include "grpc/grpc.h"
#include "server/schedule/timer.h"

namespace attnbias {

// Thread-safe. Outlives its entries.
class StreamWatchdog {
 public:
  // Registers an open call for as long as the entry exists. `call` and `caller` outlive the entry.
  class Entry {
   public:
    Entry(StreamWatchdog* watchdog, grpc_call* call, const Caller* caller);
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry();

    void WriteStarted();
    void WriteDone() { write_started_ = 0; }

    // Sets whether the call is only waiting for its client to send.
    void SetIdle(bool idle);

    // Returns why the call was closed; OK if it was not.
    absl::Status WhyClosed() const;

   private:
    friend class StreamWatchdog;

    StreamWatchdog& watchdog_;
    grpc_call* const call_;
    const Caller& caller_;
    // Why the call was closed; OK if it was not. Guarded by the watchdog's mutex.
    absl::Status why_closed_;
    // Steady-clock nanoseconds; 0 while no write is in progress, and while the call is not idle.
    std::atomic<int64_t> write_started_{0};
    std::atomic<int64_t> idle_since_{0};
  };

  // Divisor of the write timeout for a client that holds more than its share of memory while
  // another client is waiting.
  static constexpr int kCrowdedDivisor = 12;

  // The timeouts limit a single write and a single idle period. `budget` and `timer` outlive this
  // object.
  StreamWatchdog(std::chrono::milliseconds write_stall_timeout,
                 std::chrono::milliseconds idle_timeout, const ByteBudget* budget, Timer* timer);

  size_t open_calls() const;

  // Closes the calls that are idle now.
  void CloseIdle(const absl::Status& why);
  void CloseAll(const absl::Status& why);

 private:
  void CloseStalled();
  // Closes every call for which `why(entry)` is not OK.
  template <typename Why>
  void Close(Why why);

  const std::chrono::nanoseconds write_stall_timeout_;
  const std::chrono::nanoseconds idle_timeout_;
  const ByteBudget& budget_;
  mutable Mutex mutex_;
  absl::flat_hash_set<Entry*> entries_ ABSL_GUARDED_BY(mutex_);
  Timer::Task task_;
};

}  // namespace attnbias
