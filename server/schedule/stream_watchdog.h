// SPDX-License-Identifier: Apache-2.0
// Closes calls that would not end by themselves. Closes, with ABORTED, calls whose client has
// stopped reading or sending, sooner if other calls wait for the memory. A drain closes the calls
// that wait for their client to send, and finally all calls.
//
// Such calls hold memory: a write that makes no progress holds its tensor, and an idle
// ComputeLogits holds its vectors.
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
  // One call, for as long as it is open. `call` and `caller` outlive it.
  class Entry {
   public:
    Entry(StreamWatchdog* watchdog, grpc_call* call, const Caller* caller);
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry();

    void WriteStarted();
    void WriteDone() { write_started_ = 0; }

    // Sets whether the call only waits for its client to send.
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
    // Nanoseconds of the steady clock; 0 if nothing is being written or awaited.
    std::atomic<int64_t> write_started_{0};
    std::atomic<int64_t> idle_since_{0};
  };

  // Divides the write timeout of clients that hold more than their share of memory while another
  // client waits.
  static constexpr int kCrowdedDivisor = 12;

  // Maximum duration of a write, and of a call's idleness. `budget` and `timer` outlive this.
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
