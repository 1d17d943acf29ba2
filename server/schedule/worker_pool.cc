// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/worker_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace attnbias {
namespace {

// Maximum time that a caller with short tasks has used.
constexpr std::chrono::milliseconds kShort{10};

// Worker threads for each non-preemptible task that runs. They have a higher priority.
constexpr int kWorkersForEachUncut = 4;
constexpr int kUncutNice = 5;
// Maximum number of non-preemptible tasks that have begun, each on its own thread.
constexpr int kMostBegun = 16;
// Time slice of a non-preemptible task.
constexpr std::chrono::milliseconds kUncutTurn{2};

}  // namespace

struct WorkerPool::UncutThread {
  // The task that runs or begins here.
  Waiting task;
  // True while the thread may begin its task, or resume it.
  bool may_run = false;
  Condition changed;
  // Start of the time that has not been charged.
  Clock::time_point start;
  // Last time that Yield looked for other tasks.
  Clock::time_point looked;

  inline static thread_local UncutThread* current = nullptr;
};

WorkerPool::WorkerPool(int num_threads)
    : num_threads_(num_threads),
      num_uncut_((num_threads + kWorkersForEachUncut - 1) / kWorkersForEachUncut) {
  const int for_uncut = std::max(num_uncut_, kMostBegun);
  threads_.reserve(num_threads + for_uncut);
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
  for (int i = 0; i < for_uncut; ++i) {
    threads_.emplace_back([this] { WorkUncut(); });
  }
}

WorkerPool::~WorkerPool() { Shutdown(); }

void WorkerPool::Schedule(CallerPtr caller, Task task) {
  {
    MutexLock lock(mutex_);
    const std::string& owner = caller->owner().name;
    const auto kind =
        caller->used() <= kShort ? FairQueue<Waiting>::kShort : FairQueue<Waiting>::kLong;
    turns_.Push(owner, {std::move(caller), std::move(task), Clock::now()}, kind);
  }
  changed_.NotifyOne();
}

void WorkerPool::ScheduleUncut(CallerPtr caller, Task task) {
  MutexLock lock(mutex_);
  const std::string& owner = caller->owner().name;
  uncut_.Push(owner, {std::move(caller), std::move(task), Clock::now()});
  DispatchUncutLocked();
}

void WorkerPool::Yield() {
  UncutThread* const own = UncutThread::current;
  const Clock::time_point now = Clock::now();
  if (own == nullptr || now - own->looked < kUncutTurn) return;
  own->looked = now;
  MutexLock lock(mutex_);
  // If all threads have begun something, each is free sooner if it continues.
  if (uncut_.empty() || (uncut_.Front().thread == nullptr && uncut_idle_.empty())) {
    return;
  }
  const CallerPtr caller = own->task.caller;
  caller->Use(now - own->start);
  uncut_.Charge(caller->owner().name, now - own->start);
  uncut_.PushFront(caller->owner().name, {caller, nullptr, now, own});
  --uncut_running_;
  DispatchUncutLocked();
  while (!own->may_run) own->changed.Wait(mutex_);
  own->may_run = false;
  own->start = own->looked = Clock::now();
}

void WorkerPool::DispatchUncutLocked() {
  while (uncut_running_ < num_uncut_) {
    // A task that cannot begin for want of a thread does not hold up those that have begun.
    const bool has_idle = !uncut_idle_.empty();
    std::optional<Waiting> next = uncut_.PopFirst(
        [has_idle](const Waiting& waiting) { return waiting.thread != nullptr || has_idle; });
    if (!next.has_value()) return;
    UncutThread* thread = next->thread;
    if (thread == nullptr) {
      thread = uncut_idle_.back();
      uncut_idle_.pop_back();
      thread->task = *std::move(next);
    }
    ++uncut_running_;
    thread->may_run = true;
    thread->changed.NotifyOne();
  }
}

void WorkerPool::ExpediteCancelled() {
  MutexLock lock(mutex_);
  for (Waiting& task : uncut_.Extract([](const Waiting& waiting) {
         return waiting.thread == nullptr && waiting.caller->cancelled();
       })) {
    const std::string& owner = task.caller->owner().name;
    turns_.Push(owner, std::move(task));
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
  for (UncutThread* thread : uncut_idle_) thread->changed.NotifyOne();
}

int64_t WorkerPool::queued() const {
  MutexLock lock(mutex_);
  return turns_.size() + uncut_.size();
}

WorkerPool::Clock::duration WorkerPool::oldest_wait() const {
  const Clock::time_point now = Clock::now();
  Clock::time_point oldest = now;
  const auto look = [&oldest](const Waiting& waiting) { oldest = std::min(oldest, waiting.since); };
  MutexLock lock(mutex_);
  turns_.ForEach(look);
  uncut_.ForEach(look);
  return now - oldest;
}

bool WorkerPool::IsOverLocked() const {
  // A dispatched task counts in uncut_running_ before it runs.
  return stopping_ && running_ == 0 && uncut_running_ == 0 && turns_.empty() && uncut_.empty();
}

WorkerPool::Clock::duration WorkerPool::Run(Waiting& next) {
  ++running_;
  mutex_.Unlock();
  Clock::time_point of_turn;
  // Yield moves the start of a non-preemptible task.
  UncutThread* const uncut = UncutThread::current;
  Clock::time_point& start = uncut == nullptr ? of_turn : uncut->start;
  start = Clock::now();
  next.task();
  // Releases what the task holds without the lock.
  next.task = nullptr;
  const Clock::duration time = Clock::now() - start;
  next.caller->Use(time);
  mutex_.Lock();
  --running_;
  if (IsOverLocked()) WakeAllLocked();
  return time;
}

void WorkerPool::Work() {
  MutexLock lock(mutex_);
  for (;;) {
    while (turns_.empty() && !IsOverLocked()) changed_.Wait(mutex_);
    if (turns_.empty()) return;
    Waiting next = turns_.Pop();
    const Clock::duration time = Run(next);
    turns_.Charge(next.caller->owner().name, time);
  }
}

void WorkerPool::WorkUncut() {
  // On Linux, this applies to the calling thread alone.
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kUncutNice);
  UncutThread own;
  UncutThread::current = &own;
  MutexLock lock(mutex_);
  for (;;) {
    uncut_idle_.push_back(&own);
    DispatchUncutLocked();
    while (!own.may_run && !IsOverLocked()) own.changed.Wait(mutex_);
    if (!own.may_run) break;
    own.may_run = false;
    own.looked = Clock::now();
    const Clock::duration time = Run(own.task);
    uncut_.Charge(own.task.caller->owner().name, time);
    own.task = Waiting();
    --uncut_running_;
    if (IsOverLocked()) WakeAllLocked();
  }
  std::erase(uncut_idle_, &own);
}

}  // namespace attnbias
