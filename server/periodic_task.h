// SPDX-License-Identifier: Apache-2.0
// Calls a function at a steady pace on a thread of its own.
#ifndef ATTNBIAS_SERVER_PERIODIC_TASK_H_
#define ATTNBIAS_SERVER_PERIODIC_TASK_H_

#include <chrono>
#include <functional>
#include <thread>

#include "core/base/mutex.h"

namespace attnbias {

class PeriodicTask {
 public:
  // The first call comes after one `period`; a slow `body` delays the next.
  PeriodicTask(std::chrono::milliseconds period, std::function<void()> body);
  PeriodicTask(const PeriodicTask&) = delete;
  PeriodicTask& operator=(const PeriodicTask&) = delete;
  // Returns when `body` does not run and will not.
  ~PeriodicTask();

  // The next call comes at once.
  void RunSoon();

 private:
  void Repeat();
  // False when there is no next call.
  bool WaitForNext();

  const std::chrono::milliseconds period_;
  const std::function<void()> body_;
  Mutex mutex_;
  Condition woken_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool soon_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_PERIODIC_TASK_H_
