// SPDX-License-Identifier: Apache-2.0
// Closes calls that would not end by themselves and hold memory meanwhile: a write that makes no
// progress holds its tensor, a silent ComputeLogits its vectors.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/base/caller.h"
#include "core/base/mutex.h"
#include "core/cache/byte_budget.h"
#include "grpc/grpc.h"
#include "server/schedule/timer.h"

namespace attnbias {

// Closes with ABORTED the calls whose clients have stopped reading or sending. Safe for any number
// of threads. Outlives its entries.
class StallWatch {
 public:
  // An open call. `call` and `caller` outlive it.
  class Entry {
   public:
    Entry(StallWatch* watch, grpc_call* call, const Caller* caller);
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry();

    void WriteStarted() { write_started_ = Now(); }
    void WriteDone() { write_started_ = 0; }

    // Notes whether the call only waits for its client to send.
    void SetIdle(bool idle) { idle_since_ = idle ? Now() : 0; }

    // Returns why the call was closed; OK if it was not.
    absl::Status WhyClosed() const;

   private:
    friend class StallWatch;

    StallWatch& watch_;
    grpc_call* const call_;
    const Caller& caller_;
    // Index in entries_. The watch's mutex guards it and why_closed_.
    size_t place_ = 0;
    absl::Status why_closed_;
    // By Now(); 0 if no write is under way, or the call is not idle.
    std::atomic<int64_t> write_started_{0};
    std::atomic<int64_t> idle_since_{0};
  };

  // Divides the write timeout of clients that hold more than their share of memory while another
  // client waits.
  static constexpr int kCrowdedDivisor = 12;

  // Bounds the time of a write and of a rest. `budget` outlives this object.
  StallWatch(std::chrono::milliseconds progress_timeout, std::chrono::milliseconds idle_timeout,
             const ByteBudget* budget);

  size_t open_calls() const;

  // Closes the calls that are idle now.
  void CloseIdle(const absl::Status& why);
  void CloseAll(const absl::Status& why);

 private:
  // Returns nanoseconds of the steady clock.
  static int64_t Now() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  void CloseStalled();
  // Closes every call for which `why(entry)` is not OK.
  template <typename Why>
  void Close(Why why);

  const std::chrono::nanoseconds progress_timeout_;
  const std::chrono::nanoseconds idle_timeout_;
  const ByteBudget& budget_;
  mutable Mutex mutex_;
  // Unordered, so that a call comes and goes without an allocation.
  std::vector<Entry*> entries_ ABSL_GUARDED_BY(mutex_);
  Timer timer_;
};

}  // namespace attnbias
