// SPDX-License-Identifier: Apache-2.0
#include "core/base/executor.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace attnbias {
namespace {

// Shared by the caller and its helpers, which may start after all is done.
class Loop {
 public:
  Loop(int64_t count, absl::FunctionRef<void(int64_t)> body)
      : count_(count), body_(body) {}

  // Takes iterations until none is left.
  void Run() {
    int64_t finished = 0;
    for (int64_t i = next_++; i < count_; i = next_++) {
      body_(i);
      ++finished;
    }
    if (finished == 0) return;
    std::lock_guard<std::mutex> lock(mutex_);
    finished_ += finished;
    if (finished_ == count_) all_finished_.notify_all();
  }

  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    all_finished_.wait(lock, [this] { return finished_ == count_; });
  }

 private:
  const int64_t count_;
  // Not called, so not dangling, once every iteration has been taken.
  const absl::FunctionRef<void(int64_t)> body_;
  std::atomic<int64_t> next_{0};
  std::mutex mutex_;
  std::condition_variable all_finished_;
  int64_t finished_ = 0;  // guarded by mutex_
};

}  // namespace

void ParallelFor(Executor& executor, int64_t count,
                 absl::FunctionRef<void(int64_t)> body) {
  if (count <= 0) return;
  auto loop = std::make_shared<Loop>(count, body);
  const int64_t helpers = std::min<int64_t>(count, executor.num_threads()) - 1;
  for (int64_t i = 0; i < helpers; ++i) {
    if (!executor.Schedule([loop] { loop->Run(); })) break;
  }
  loop->Run();
  loop->Wait();
}

}  // namespace attnbias
