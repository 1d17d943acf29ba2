// SPDX-License-Identifier: Apache-2.0
// The threads that compute, and their scheduling.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "core/base/executor.h"
#include "core/base/mutex.h"
#include "server/schedule/fair_queue.h"

namespace attnbias {

// Shares time fairly between clients. Among a client's callers, those that have used little time,
// because their results are cached or cheap, run first.
//
// Runs non-preemptible tasks on additional threads, a few at a time, at a lower priority. Those
// tasks share time fairly when they yield.
//
// Thread-safe.
class WorkerPool final : public Executor {
 public:
  using Clock = std::chrono::steady_clock;

  // `num_threads` is at least 1.
  explicit WorkerPool(int num_threads);
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool() override;

  void Schedule(CallerPtr caller, Task task) override;
  void ScheduleBlocking(CallerPtr caller, Task task) override;
  void Yield() override;
  int num_threads() const override { return num_threads_; }

  // Moves non-preemptible tasks that have not started, and whose callers have cancelled, to the
  // threads for preemptible tasks. There they end sooner and release the memory that they hold.
  void ExpediteCancelled();

  // Runs the queued tasks and joins the threads. Must not be called from a task.
  void Shutdown();

  // Returns the number of queued tasks.
  int64_t queued() const;
  // Returns how long the oldest queued task has waited; 0 if none is queued.
  Clock::duration oldest_wait() const;

 private:
  // A thread for non-preemptible tasks.
  struct BlockingThread;

  struct Waiting {
    CallerPtr caller;
    Task task;
    Clock::time_point since;
    // The thread, if this is a non-preemptible task that has started; otherwise null.
    BlockingThread* thread = nullptr;
  };

  // Returns whether the pool is stopping and no task remains.
  bool IsOverLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ && unfinished_ == 0;
  }
  // Runs `next`, popped from `queue`, without holding the lock. Sets `start` and, at the end,
  // charges the time since `start`. Yield advances `start` when it charges part of the time.
  void Run(FairQueue<Waiting>& queue, Waiting& next, Clock::time_point& start)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work();
  void WorkBlocking();
  // Resumes or starts as many non-preemptible tasks as may run.
  void DispatchBlockingLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeAllLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int num_threads_;
  // Maximum number of non-preemptible tasks that run at the same time. Other tasks may have started
  // and then yielded.
  const int num_blocking_;

  mutable Mutex mutex_;
  Condition changed_;
  FairQueue<Waiting> preemptible_ ABSL_GUARDED_BY(mutex_);
  FairQueue<Waiting> blocking_ ABSL_GUARDED_BY(mutex_);
  int blocking_running_ ABSL_GUARDED_BY(mutex_) = 0;
  // Threads without a task.
  std::vector<BlockingThread*> blocking_idle_ ABSL_GUARDED_BY(mutex_);
  // Tasks that are queued or have begun.
  int64_t unfinished_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace attnbias
