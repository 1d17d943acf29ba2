// SPDX-License-Identifier: Apache-2.0
#include "server/worker_pool.h"

#include <utility>

namespace attnbias {

WorkerPool::WorkerPool(int num_threads, int64_t capacity)
    : num_threads_(num_threads), capacity_(capacity) {
  threads_.reserve(num_threads);
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
}

WorkerPool::~WorkerPool() { Shutdown(); }

bool WorkerPool::Schedule(absl::AnyInvocable<void()> task) {
  {
    MutexLock lock(mutex_);
    if (stopping_ || static_cast<int64_t>(queue_.size()) >= capacity_) {
      return false;
    }
    queue_.push_back(std::move(task));
  }
  changed_.NotifyOne();
  return true;
}

void WorkerPool::Shutdown() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

int64_t WorkerPool::queued() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(queue_.size());
}

void WorkerPool::Work() {
  for (;;) {
    absl::AnyInvocable<void()> task;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && queue_.empty()) changed_.Wait(mutex_);
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
  }
}

}  // namespace attnbias
