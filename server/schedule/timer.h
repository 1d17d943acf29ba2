// SPDX-License-Identifier: Apache-2.0
// Calls functions periodically.
#pragma once

#include <chrono>
#include <functional>
#include <set>
#include <thread>

#include "core/base/mutex.h"

namespace attnbias {

// Thread-safe. Outlives its tasks.
class Timer {
 public:
  // Thread that runs a task's body.
  enum class On {
    // The timer's thread: a running body delays the timer's other tasks.
    kTimer,
    // A new thread for each call, for bodies that may wait for a disk.
    kOwnThread,
  };

  // Calls `body` every `period` during its lifetime, the first time after one period. A body that
  // takes longer delays its own next call.
  class Task {
   public:
    Task(Timer* timer, std::chrono::milliseconds period, std::function<void()> body,
         On on = On::kTimer);
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    // Returns once `body` is not running and will not run again.
    ~Task();

    // Makes the next call happen immediately.
    void RunSoon();

   private:
    friend class Timer;

    void CallBody();
    // Returns false if no thread can be created.
    bool StartThread();

    Timer& timer_;
    const std::chrono::milliseconds period_;
    const std::function<void()> body_;
    const On on_;
    // Guarded by the timer's mutex.
    std::chrono::steady_clock::time_point due_;
    bool running_ = false;
    std::jthread thread_;
  };

  Timer() : thread_([this] { RunUntilStopped(); }) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer();

 private:
  void RunUntilStopped();

  Mutex mutex_;
  // Notified when the tasks change and when the timer stops.
  Condition changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<Task*> tasks_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace attnbias
