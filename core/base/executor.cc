// SPDX-License-Identifier: Apache-2.0
#include "core/base/executor.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "core/base/mutex.h"

namespace attnbias {
namespace {

// Shared by the caller and its helpers, which may start after all is done.
class Loop {
 public:
  Loop(int64_t count, absl::FunctionRef<void(int64_t)> body)
      : count_(count), body_(body) {}

  // Until none is left.
  void TakeIterations() {
    int64_t finished = 0;
    for (int64_t i = next_++; i < count_; i = next_++) {
      body_(i);
      ++finished;
    }
    if (finished == 0) return;
    MutexLock lock(mutex_);
    finished_ += finished;
    if (finished_ == count_) all_finished_.NotifyAll();
  }

  void Wait() {
    MutexLock lock(mutex_);
    while (finished_ != count_) all_finished_.Wait(mutex_);
  }

 private:
  const int64_t count_;
  // Not called, so not dangling, once every iteration has been taken.
  const absl::FunctionRef<void(int64_t)> body_;
  std::atomic<int64_t> next_{0};
  Mutex mutex_;
  Condition all_finished_;
  int64_t finished_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

void ParallelFor(Executor& executor, int64_t count,
                 absl::FunctionRef<void(int64_t)> body) {
  if (count <= 0) return;
  auto loop = std::make_shared<Loop>(count, body);
  const int64_t helpers = std::min<int64_t>(count, executor.num_threads()) - 1;
  for (int64_t i = 0; i < helpers; ++i) {
    if (!executor.Schedule([loop] { loop->TakeIterations(); })) break;
  }
  loop->TakeIterations();
  loop->Wait();
}

absl::Status TryParallelFor(Executor& executor, int64_t count,
                            absl::FunctionRef<absl::Status(int64_t)> body) {
  std::atomic<bool> failed{false};
  Mutex mutex;
  absl::Status first;
  ParallelFor(executor, count, [&](int64_t i) {
    if (failed) return;
    const absl::Status done = body(i);
    if (done.ok()) return;
    failed = true;
    MutexLock lock(mutex);
    first.Update(done);
  });
  return first;
}

}  // namespace attnbias
