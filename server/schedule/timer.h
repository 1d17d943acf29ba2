// SPDX-License-Identifier: Apache-2.0
// Calls functions at steady paces from one thread.
#pragma once

#include <chrono>
#include <functional>
#include <set>
#include <thread>

#include "core/base/mutex.h"

namespace attnbias {

// Safe for any number of threads. Outlives its tasks.
class Timer {
 public:
  // Calls `body` every `period` as long as it lives, for the first time after one. A body that
  // takes longer delays its own next call. A body delays those of the timer's other tasks.
  class Task {
   public:
    Task(Timer* timer, std::chrono::milliseconds period, std::function<void()> body);
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    // Returns when `body` does not run and will not.
    ~Task();

    // Makes the next call come at once.
    void RunSoon();

   private:
    friend class Timer;

    Timer& timer_;
    const std::chrono::milliseconds period_;
    const std::function<void()> body_;
    // Under the timer's mutex.
    std::chrono::steady_clock::time_point due_;
  };

  Timer() : thread_([this] { RunUntilStopped(); }) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer();

 private:
  void RunUntilStopped();

  Mutex mutex_;
  // Tasks have changed, or the timer ends.
  Condition changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<Task*> tasks_ ABSL_GUARDED_BY(mutex_);
  const Task* running_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::thread thread_;
};

}  // namespace attnbias
