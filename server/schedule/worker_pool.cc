// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/worker_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace attnbias {
namespace {

// A caller's tasks count as short until it has used this much time.
constexpr std::chrono::milliseconds kShort{10};

// Number of worker threads (which have a higher priority) per running non-preemptible task.
constexpr int kWorkersForEachBlocking = 4;
constexpr int kBlockingNice = 5;
// Maximum number of non-preemptible tasks that have started, each on its own thread.
constexpr int kMostBegun = 16;
constexpr std::chrono::milliseconds kBlockingTimeSlice{2};

}  // namespace

struct WorkerPool::BlockingThread {
  // The task that is running or about to start on this thread.
  Waiting task;
  // True while the thread may start or resume its task.
  bool may_run = false;
  Condition changed;
  // Start of the time that has not yet been charged.
  Clock::time_point start;
  // Time at which Yield last looked for other tasks.
  Clock::time_point looked;

  inline static thread_local BlockingThread* current = nullptr;
};

WorkerPool::WorkerPool(int num_threads)
    : num_threads_(num_threads),
      num_blocking_((num_threads + kWorkersForEachBlocking - 1) / kWorkersForEachBlocking) {
  const int for_blocking = std::max(num_blocking_, kMostBegun);
  threads_.reserve(num_threads + for_blocking);
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
  for (int i = 0; i < for_blocking; ++i) {
    threads_.emplace_back([this] { WorkBlocking(); });
  }
}

WorkerPool::~WorkerPool() { Shutdown(); }

void WorkerPool::Schedule(CallerPtr caller, Task task) {
  {
    MutexLock lock(mutex_);
    const std::string& owner = caller->owner().name;
    const auto kind =
        caller->used() <= kShort ? FairQueue<Waiting>::kShort : FairQueue<Waiting>::kLong;
    preemptible_.Push(owner, {std::move(caller), std::move(task), Clock::now()}, kind);
    ++unfinished_;
  }
  changed_.NotifyOne();
}

void WorkerPool::ScheduleBlocking(CallerPtr caller, Task task) {
  MutexLock lock(mutex_);
  const std::string& owner = caller->owner().name;
  blocking_.Push(owner, {std::move(caller), std::move(task), Clock::now()});
  ++unfinished_;
  DispatchBlockingLocked();
}

void WorkerPool::Yield() {
  BlockingThread* const own = BlockingThread::current;
  const Clock::time_point now = Clock::now();
  if (own == nullptr || now - own->looked < kBlockingTimeSlice) return;
  own->looked = now;
  MutexLock lock(mutex_);
  // If the next task has not started and no thread is idle, a thread becomes free sooner if this
  // task continues.
  if (blocking_.empty() || (blocking_.Front().thread == nullptr && blocking_idle_.empty())) {
    return;
  }
  const CallerPtr caller = own->task.caller;
  caller->Use(now - own->start);
  blocking_.Charge(caller->owner().name, now - own->start);
  blocking_.PushFront(caller->owner().name, {caller, nullptr, now, own});
  --blocking_running_;
  DispatchBlockingLocked();
  while (!own->may_run) own->changed.Wait(mutex_);
  own->may_run = false;
  own->start = own->looked = Clock::now();
}

void WorkerPool::DispatchBlockingLocked() {
  while (blocking_running_ < num_blocking_) {
    // A task that cannot start for lack of a thread does not block tasks that have started.
    const bool has_idle = !blocking_idle_.empty();
    std::optional<Waiting> next = blocking_.PopFirst(
        [has_idle](const Waiting& waiting) { return waiting.thread != nullptr || has_idle; });
    if (!next.has_value()) return;
    BlockingThread* thread = next->thread;
    if (thread == nullptr) {
      thread = blocking_idle_.back();
      blocking_idle_.pop_back();
      thread->task = *std::move(next);
    }
    ++blocking_running_;
    thread->may_run = true;
    thread->changed.NotifyOne();
  }
}

void WorkerPool::ExpediteCancelled() {
  MutexLock lock(mutex_);
  for (Waiting& task : blocking_.Extract([](const Waiting& waiting) {
         return waiting.thread == nullptr && waiting.caller->cancelled();
       })) {
    const std::string& owner = task.caller->owner().name;
    preemptible_.Push(owner, std::move(task));
    changed_.NotifyOne();
  }
}

void WorkerPool::Shutdown() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    WakeAllLocked();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void WorkerPool::WakeAllLocked() {
  changed_.NotifyAll();
  for (BlockingThread* thread : blocking_idle_) thread->changed.NotifyOne();
}

int64_t WorkerPool::queued() const {
  MutexLock lock(mutex_);
  return preemptible_.size() + blocking_.size();
}

WorkerPool::Clock::duration WorkerPool::oldest_wait() const {
  const Clock::time_point now = Clock::now();
  Clock::time_point oldest = now;
  const auto look = [&oldest](const Waiting& waiting) { oldest = std::min(oldest, waiting.since); };
  MutexLock lock(mutex_);
  preemptible_.ForEach(look);
  blocking_.ForEach(look);
  return now - oldest;
}

void WorkerPool::Run(FairQueue<Waiting>& queue, Waiting& next, Clock::time_point& start) {
  mutex_.Unlock();
  start = Clock::now();
  next.task();
  // Releases the task's resources without holding the lock.
  next.task = nullptr;
  const Clock::duration time = Clock::now() - start;
  next.caller->Use(time);
  mutex_.Lock();
  queue.Charge(next.caller->owner().name, time);
  --unfinished_;
  if (IsOverLocked()) WakeAllLocked();
}

void WorkerPool::Work() {
  MutexLock lock(mutex_);
  for (;;) {
    while (preemptible_.empty() && !IsOverLocked()) changed_.Wait(mutex_);
    if (preemptible_.empty()) return;
    Waiting next = preemptible_.Pop();
    Clock::time_point start;
    Run(preemptible_, next, start);
  }
}

void WorkerPool::WorkBlocking() {
  // On Linux, this applies only to the calling thread.
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kBlockingNice);
  BlockingThread own;
  BlockingThread::current = &own;
  MutexLock lock(mutex_);
  for (;;) {
    blocking_idle_.push_back(&own);
    DispatchBlockingLocked();
    while (!own.may_run && !IsOverLocked()) own.changed.Wait(mutex_);
    if (!own.may_run) break;
    own.may_run = false;
    own.looked = Clock::now();
    Run(blocking_, own.task, own.start);
    own.task = Waiting();
    --blocking_running_;
  }
  std::erase(blocking_idle_, &own);
}

}  // namespace attnbias
