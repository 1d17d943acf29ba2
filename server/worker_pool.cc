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
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_ || static_cast<int64_t>(queue_.size()) >= capacity_) {
      return false;
    }
    queue_.push_back(std::move(task));
  }
  changed_.notify_one();
  return true;
}

void WorkerPool::Shutdown() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

int64_t WorkerPool::queued() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int64_t>(queue_.size());
}

void WorkerPool::Work() {
  for (;;) {
    absl::AnyInvocable<void()> task;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
  }
}

}  // namespace attnbias
