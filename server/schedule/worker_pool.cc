// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/worker_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace attnbias {
namespace {

// Who has used no more is in the short lane.
constexpr std::chrono::milliseconds kShort{10};
// While tasks wait in both lanes, the short one has so many times the time.
constexpr int kShortShare = 8;

// Threads for each uncut task that runs. The task gives way to them.
constexpr int kWorkersForEachUncut = 4;
constexpr int kUncutNice = 5;
// Maximum number of uncut tasks that have begun, each on its own thread.
constexpr int kMostBegun = 16;
// Time after which an uncut task yields.
constexpr std::chrono::milliseconds kUncutTurn{2};

}  // namespace

struct WorkerPool::UncutThread {
  // The task that runs here, or is to begin here.
  Waiting task;
  // True while the thread may begin its task, or resume it.
  bool may_run = false;
  Condition changed;
  // Beginning of the time that has not been charged.
  Clock::time_point start;
  // Last time that Yield checked whether others wait.
  Clock::time_point looked;

  inline static thread_local UncutThread* current = nullptr;
};

WorkerPool::WorkerPool(int num_threads, int64_t capacity)
    : num_threads_(num_threads),
      num_uncut_((num_threads + kWorkersForEachUncut - 1) /
                 kWorkersForEachUncut),
      capacity_(capacity) {
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

bool WorkerPool::Schedule(CallerPtr caller, Task task) {
  {
    MutexLock lock(mutex_);
    const int64_t of_others = capacity_ - QueuedLocked();
    const std::string& owner = caller->owner().name;
    const int64_t own = short_.queue.size_of(owner) +
                        long_.queue.size_of(owner) + uncut_.size_of(owner);
    if (stopping_ || own >= of_others) return false;
    PushLocked(std::move(caller), std::move(task));
  }
  changed_.NotifyOne();
  return true;
}

void WorkerPool::Continue(CallerPtr caller, Task task) {
  {
    MutexLock lock(mutex_);
    PushLocked(std::move(caller), std::move(task));
  }
  changed_.NotifyOne();
}

void WorkerPool::ContinueUncut(CallerPtr caller, Task task) {
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
  if (uncut_.empty() ||
      (uncut_.Front().thread == nullptr && uncut_idle_.empty())) {
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
    // One that cannot begin for want of a thread holds up none that has begun.
    const bool has_idle = !uncut_idle_.empty();
    std::optional<Waiting> next =
        uncut_.PopFirst([has_idle](const Waiting& waiting) {
          return waiting.thread != nullptr || has_idle;
        });
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

void WorkerPool::PushLocked(CallerPtr caller, Task task) {
  Lane& lane = LaneOf(*caller);
  // A lane that was empty has saved up nothing.
  if (lane.queue.empty()) {
    const Lane& other = &lane == &short_ ? long_ : short_;
    lane.used = std::max(lane.used, other.used);
  }
  const std::string& owner = caller->owner().name;
  lane.queue.Push(owner, {std::move(caller), std::move(task), Clock::now()});
}

WorkerPool::Lane& WorkerPool::LaneOf(const Caller& caller) {
  return caller.used() <= kShort ? short_ : long_;
}

void WorkerPool::ExpediteCancelled() {
  {
    MutexLock lock(mutex_);
    const size_t before = cancelled_.size();
    for (Lane* lane : {&short_, &long_}) {
      for (Waiting& waiting : lane->queue.Extract([](const Waiting& waiting) {
             return waiting.caller->cancelled();
           })) {
        cancelled_.push_back(std::move(waiting));
      }
    }
    for (Waiting& waiting : uncut_.Extract([](const Waiting& waiting) {
           return waiting.thread == nullptr && waiting.caller->cancelled();
         })) {
      cancelled_.push_back(std::move(waiting));
    }
    if (cancelled_.size() == before) return;
  }
  changed_.NotifyAll();
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

bool WorkerPool::HasTurnsLocked() const {
  return !cancelled_.empty() || !short_.queue.empty() || !long_.queue.empty();
}

int64_t WorkerPool::QueuedLocked() const {
  return static_cast<int64_t>(cancelled_.size()) + short_.queue.size() +
         long_.queue.size() + uncut_.size();
}

int64_t WorkerPool::queued() const {
  MutexLock lock(mutex_);
  return QueuedLocked();
}

WorkerPool::Clock::duration WorkerPool::oldest_wait() const {
  const Clock::time_point now = Clock::now();
  Clock::time_point oldest = now;
  const auto look = [&oldest](const Waiting& waiting) {
    oldest = std::min(oldest, waiting.since);
  };
  MutexLock lock(mutex_);
  std::for_each(cancelled_.begin(), cancelled_.end(), look);
  short_.queue.ForEach(look);
  long_.queue.ForEach(look);
  uncut_.ForEach(look);
  return now - oldest;
}

WorkerPool::Waiting WorkerPool::TakeTurnLocked(Lane** lane) {
  if (!cancelled_.empty()) {
    Waiting next = std::move(cancelled_.front());
    cancelled_.pop_front();
    return next;
  }
  const bool in_long = short_.queue.empty() ||
                       (!long_.queue.empty() && long_.used < short_.used);
  *lane = in_long ? &long_ : &short_;
  return (*lane)->queue.Pop();
}

bool WorkerPool::IsOverLocked() const {
  // A task that was dispatched runs a moment later.
  return stopping_ && running_ == 0 && uncut_running_ == 0 &&
         QueuedLocked() == 0;
}

WorkerPool::Clock::duration WorkerPool::Run(Waiting& next) {
  ++running_;
  mutex_.Unlock();
  Clock::time_point of_turn;
  // Yield moves the start of an uncut task.
  UncutThread* const uncut = UncutThread::current;
  Clock::time_point& start = uncut == nullptr ? of_turn : uncut->start;
  start = Clock::now();
  next.task();
  // What it holds may be large, and goes without the lock.
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
    while (!HasTurnsLocked() && !IsOverLocked()) changed_.Wait(mutex_);
    if (!HasTurnsLocked()) return;
    Lane* lane = nullptr;
    Waiting next = TakeTurnLocked(&lane);
    const Clock::duration time = Run(next);
    if (lane == nullptr) continue;
    lane->queue.Charge(next.caller->owner().name, time);
    lane->used += lane == &long_ ? kShortShare * time : time;
  }
}

void WorkerPool::WorkUncut() {
  // Of this thread alone, on Linux.
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
