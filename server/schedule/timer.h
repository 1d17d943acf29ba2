// SPDX-License-Identifier: Apache-2.0
// Calls functions at steady paces, all from one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <set>
#include <thread>

#include "core/base/mutex.h"

namespace attnbias {

// Safe for any number of threads. Outlives its tasks.
class Timer {
 public:
  enum class Body : uint8_t {
    // Never waits: the timer's thread runs it.
    kShort,
    // May wait for a disk: it has its own thread while it runs.
    kLong
  };

  // Calls `body` every `period` as long as it lives, for the first time after one. A body that
  // takes longer delays its own next call.
  class Task {
   public:
    Task(Timer* timer, std::chrono::milliseconds period, std::function<void()> body,
         Body kind = Body::kShort);
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
    const Body kind_;
    // Under the timer's mutex.
    std::chrono::steady_clock::time_point due_;
    bool running_ = false;
    std::future<void> long_run_;
  };

  Timer() : thread_([this] { RunUntilStopped(); }) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer();

 private:
  void RunUntilStopped();
  // Null when every task is running, or there is none.
  Task* NextLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginLocked(Task& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(Task& task);

  Mutex mutex_;
  // Tasks have changed, or the timer ends.
  Condition changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<Task*> tasks_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace attnbias
