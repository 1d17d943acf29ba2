// SPDX-License-Identifier: Apache-2.0
// Calls a function at a steady pace.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "core/base/mutex.h"

namespace attnbias {

// Calls `body` every `period`, for the first time after one, on a thread of its own. A body that
// takes longer delays its own next call. Safe for any number of threads.
class Timer {
 public:
  Timer(std::chrono::milliseconds period, std::function<void()> body)
      : period_(period), body_(std::move(body)), thread_([this] { RunUntilStopped(); }) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  // Waits for a call under way.
  ~Timer() {
    mutex_.Lock();
    stopping_ = true;
    mutex_.Unlock();
    changed_.NotifyOne();
    thread_.join();
  }

  // Makes the next call due now.
  void RunSoon() {
    const MutexLock lock(mutex_);
    due_ = Clock::now();
    changed_.NotifyOne();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void RunUntilStopped() {
    mutex_.Lock();
    while (!stopping_) {
      if (Clock::now() < due_) {
        changed_.WaitUntil(mutex_, due_);
        continue;
      }
      due_ = Clock::time_point::max();
      mutex_.Unlock();
      body_();
      mutex_.Lock();
      // RunSoon may have set it meanwhile.
      due_ = std::min(due_, Clock::now() + period_);
    }
    mutex_.Unlock();
  }

  const std::chrono::milliseconds period_;
  const std::function<void()> body_;
  Mutex mutex_;
  Condition changed_;
  Clock::time_point due_ ABSL_GUARDED_BY(mutex_) = Clock::now() + period_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace attnbias
