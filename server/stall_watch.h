// SPDX-License-Identifier: Apache-2.0
// Closes streams whose client has stopped reading, with ABORTED.
//
// A write that flow control holds back never ends by itself, and pins its call
// and the tensor behind it.
#ifndef ATTNBIAS_SERVER_STALL_WATCH_H_
#define ATTNBIAS_SERVER_STALL_WATCH_H_

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>

#include "grpc/grpc.h"
#include "server/periodic_task.h"

namespace attnbias {

// Safe for any number of threads. Outlives its entries.
class StallWatch {
 public:
  // One stream. `call` outlives it.
  class Entry {
   public:
    Entry(StallWatch* watch, grpc_call* call);
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry();

    void WriteStarted();
    void WriteDone();
    // Whether the call was closed for want of progress.
    bool stalled() const { return stalled_; }

   private:
    friend class StallWatch;

    StallWatch* const watch_;
    grpc_call* const call_;
    // Nanoseconds of the steady clock; 0 when nothing is being written.
    std::atomic<int64_t> write_started_{0};
    std::atomic<bool> stalled_{false};
  };

  explicit StallWatch(std::chrono::milliseconds timeout);

 private:
  void CloseStalled();

  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::set<Entry*> entries_;  // guarded by mutex_
  PeriodicTask task_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_STALL_WATCH_H_
