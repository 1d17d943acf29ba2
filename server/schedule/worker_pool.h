// SPDX-License-Identifier: Apache-2.0
// The threads that compute, and the order in which tasks have them.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "core/base/executor.h"
#include "core/base/mutex.h"
#include "server/schedule/fair_queue.h"

namespace attnbias {

// Clients take turns. Of one client's callers, those that have used little time, and so have asked
// for what is cached or cheap, come before the others.
//
// Uncut tasks run on more threads, a few at a time, at a lower priority. Where they yield, they
// take turns as well.
//
// Safe for any number of threads.
class WorkerPool final : public Executor {
 public:
  using Clock = std::chrono::steady_clock;

  // `num_threads` is at least 1.
  explicit WorkerPool(int num_threads);
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool() override;

  void Schedule(CallerPtr caller, Task task) override;
  void ScheduleUncut(CallerPtr caller, Task task) override;
  void Yield() override;
  int num_threads() const override { return num_threads_; }

  // Lets uncut tasks of cancelled callers that have not begun end at once, on the other threads:
  // until they do, memory is set aside for them.
  void ExpediteCancelled();

  // Runs what waits and joins the threads. Not to be called from a task.
  void Shutdown();

  // Number of tasks that wait for a thread.
  int64_t queued() const;
  // How long the oldest of them has waited; 0 if there is none.
  Clock::duration oldest_wait() const;

 private:
  // A thread for uncut tasks.
  struct UncutThread;

  struct Waiting {
    CallerPtr caller;
    Task task;
    Clock::time_point since;
    // Thread of an uncut task that has begun; else null.
    UncutThread* thread = nullptr;
  };

  // Whether no task will come any more.
  bool IsOverLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs a task without the lock. Returns how long it took.
  Clock::duration Run(Waiting& next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work();
  void WorkUncut();
  // Lets the next uncut tasks run, as many as may.
  void DispatchUncutLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeAllLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int num_threads_;
  // Uncut tasks that run at once; others have begun, and have yielded.
  const int num_uncut_;

  mutable Mutex mutex_;
  Condition changed_;
  FairQueue<Waiting> turns_ ABSL_GUARDED_BY(mutex_);
  FairQueue<Waiting> uncut_ ABSL_GUARDED_BY(mutex_);
  int uncut_running_ ABSL_GUARDED_BY(mutex_) = 0;
  // Threads without a task.
  std::vector<UncutThread*> uncut_idle_ ABSL_GUARDED_BY(mutex_);
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace attnbias
