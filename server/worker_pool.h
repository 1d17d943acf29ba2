// SPDX-License-Identifier: Apache-2.0
// The threads that compute, behind one bounded queue.
#ifndef ATTNBIAS_SERVER_WORKER_POOL_H_
#define ATTNBIAS_SERVER_WORKER_POOL_H_

#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "core/base/executor.h"
#include "core/base/mutex.h"

namespace attnbias {

// Safe for any number of threads; tasks run first in, first out.
class WorkerPool final : public Executor {
 public:
  // `num_threads` and `capacity` (tasks that may wait) are at least 1.
  WorkerPool(int num_threads, int64_t capacity);
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool() override;

  // False when the queue is full or the pool is shut down.
  bool Schedule(absl::AnyInvocable<void()> task) override;
  int num_threads() const override { return num_threads_; }

  // Takes no more work, runs what waits and joins the threads. Not to be called
  // from a task.
  void Shutdown();

  int64_t capacity() const { return capacity_; }
  // Tasks that wait for a thread.
  int64_t queued() const;

 private:
  void Work();

  const int num_threads_;
  const int64_t capacity_;

  mutable Mutex mutex_;
  Condition changed_;
  std::deque<absl::AnyInvocable<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_WORKER_POOL_H_
