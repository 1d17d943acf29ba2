// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/executor.h"

namespace attnbias {

// An executor with its own threads; runs all tasks scheduled before its destruction.
class Threads final : public Executor {
 public:
  explicit Threads(int count) {
    for (int i = 0; i < count; ++i) threads_.emplace_back([this] { Run(); });
  }

  ~Threads() override { Join(); }

  // Runs all scheduled tasks and ends the threads. Tests whose tasks use objects created after the
  // threads, and therefore destroyed before them, must end with this call.
  void Join() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  void Schedule(CallerPtr /*caller*/, Task task) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

  void ScheduleBlocking(CallerPtr caller, Task task) override {
    Schedule(std::move(caller), std::move(task));
  }

  int num_threads() const override { return static_cast<int>(threads_.size()); }

 private:
  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace attnbias
