// SPDX-License-Identifier: Apache-2.0
// Calls a function at a steady pace on a thread of its own.
#ifndef ATTNBIAS_SERVER_PERIODIC_TASK_H_
#define ATTNBIAS_SERVER_PERIODIC_TASK_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

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
  void Run();

  const std::chrono::milliseconds period_;
  const std::function<void()> body_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool stopping_ = false;  // guarded by mutex_
  bool soon_ = false;      // guarded by mutex_
  std::thread thread_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_PERIODIC_TASK_H_
