// SPDX-License-Identifier: Apache-2.0
// Calls a function at a steady pace.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "core/base/mutex.h"

namespace attnbias {

// Calls `body` every `period` on its own thread as long as it lives, for the first time after one.
// A body that takes longer delays its own next call.
class Timer {
 public:
  Timer(std::chrono::milliseconds period, std::function<void()> body);
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  // Returns when `body` does not run and will not.
  ~Timer();

  // Makes the next call come at once.
  void RunSoon();

 private:
  void RunUntilStopped();

  const std::chrono::milliseconds period_;
  const std::function<void()> body_;
  Mutex mutex_;
  // One of the following has changed.
  Condition changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point due_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace attnbias
