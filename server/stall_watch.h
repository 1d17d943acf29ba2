// SPDX-License-Identifier: Apache-2.0
// Closes streams that would not end by themselves: those whose client has
// stopped reading, with ABORTED, and, when the server drains, those that wait
// for their client to send, with UNAVAILABLE.
//
// A write that flow control holds back pins its call and the tensor behind it.
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

    // Says whether nothing is under way but waiting for the client to send.
    void SetIdle(bool idle) { idle_ = idle; }
    // Whether the call was closed while it was idle.
    bool dismissed() const { return dismissed_; }

   private:
    friend class StallWatch;

    StallWatch* const watch_;
    grpc_call* const call_;
    // Nanoseconds of the steady clock; 0 when nothing is being written.
    std::atomic<int64_t> write_started_{0};
    std::atomic<bool> stalled_{false};
    std::atomic<bool> idle_{false};
    std::atomic<bool> dismissed_{false};
  };

  explicit StallWatch(std::chrono::milliseconds timeout);

  // Closes the streams that are idle now.
  void CloseIdle();

 private:
  void CloseStalled();
  // Closes every stream of which `choose(entry)` is true.
  template <typename Choose>
  void Close(grpc_status_code code, const char* reason, Choose choose);

  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::set<Entry*> entries_;  // guarded by mutex_
  PeriodicTask task_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_STALL_WATCH_H_
