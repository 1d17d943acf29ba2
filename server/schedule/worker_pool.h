// SPDX-License-Identifier: Apache-2.0
// The threads that compute, and who has them next.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#include "core/base/executor.h"
#include "core/base/mutex.h"
#include "server/schedule/fair_queue.h"

namespace attnbias {

// Callers who have used little time, and so have asked for what is cached or
// cheap, have a lane of their own, which has most of the threads' time as long
// as anybody waits in it. In either lane clients take turns. Tasks of
// callers who have cancelled come before all: they only end. What cannot be cut
// runs on more threads, a few at a time, which give way to the others. Where it
// yields, it takes turns as well.
//
// Safe for any number of threads.
class WorkerPool final : public Executor {
 public:
  using Clock = std::chrono::steady_clock;

  // `num_threads` and `capacity` (tasks that may wait) are at least 1.
  WorkerPool(int num_threads, int64_t capacity);
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool() override;

  // False when the pool is shut down or the queue is full. It is full for a
  // client that has as many tasks in it as there is room for others.
  bool Schedule(CallerPtr caller, Task task) override;
  void Continue(CallerPtr caller, Task task) override;
  void ContinueUncut(CallerPtr caller, Task task) override;
  void Yield() override;
  int num_threads() const override { return num_threads_; }

  // Brings forward the tasks of callers who have cancelled. To be called from
  // time to time.
  void ExpediteCancelled();

  // Takes no more work, runs what waits and joins the threads. Not to be called
  // from a task.
  void Shutdown();

  // Tasks that wait for a thread.
  int64_t queued() const;
  // How long the oldest of them has waited; 0 where there is none.
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
  struct Lane {
    FairQueue<Waiting> queue;
    // Time used, in proportion to the lane's share.
    Clock::duration used{0};
  };

  Lane& LaneOf(const Caller& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a task waits for a thread that takes turns.
  bool HasTurnsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether no task will come any more.
  bool IsOverLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t QueuedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PushLocked(CallerPtr caller, Task task)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Waiting TakeTurnLocked(Lane** lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
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
  const int64_t capacity_;

  mutable Mutex mutex_;
  Condition changed_;
  std::deque<Waiting> cancelled_ ABSL_GUARDED_BY(mutex_);
  Lane short_ ABSL_GUARDED_BY(mutex_);
  Lane long_ ABSL_GUARDED_BY(mutex_);
  FairQueue<Waiting> uncut_ ABSL_GUARDED_BY(mutex_);
  int uncut_running_ ABSL_GUARDED_BY(mutex_) = 0;
  // Threads without a task.
  std::vector<UncutThread*> uncut_idle_ ABSL_GUARDED_BY(mutex_);
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace attnbias
