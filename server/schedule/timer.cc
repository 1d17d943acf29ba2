// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/timer.h"

#include <utility>

namespace attnbias {

using Clock = std::chrono::steady_clock;

Timer::Task::Task(Timer* timer, std::chrono::milliseconds period, std::function<void()> body,
                  Body kind)
    : timer_(*timer),
      period_(period),
      body_(std::move(body)),
      kind_(kind),
      due_(Clock::now() + period) {
  MutexLock lock(timer_.mutex_);
  timer_.tasks_.insert(this);
  timer_.changed_.NotifyAll();
}

Timer::Task::~Task() {
  MutexLock lock(timer_.mutex_);
  timer_.tasks_.erase(this);
  while (running_) timer_.changed_.Wait(timer_.mutex_);
}

void Timer::Task::RunSoon() {
  MutexLock lock(timer_.mutex_);
  due_ = Clock::now();
  timer_.changed_.NotifyAll();
}

Timer::~Timer() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void Timer::RunUntilStopped() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    Task* const next = NextLocked();
    if (next == nullptr) {
      changed_.Wait(mutex_);
    } else if (next->due_ <= Clock::now()) {
      BeginLocked(*next);
    } else {
      changed_.WaitUntil(mutex_, next->due_);
    }
  }
}

Timer::Task* Timer::NextLocked() const {
  Task* next = nullptr;
  for (Task* const task : tasks_) {
    if (task->running_) continue;
    if (next == nullptr || task->due_ < next->due_) next = task;
  }
  return next;
}

void Timer::BeginLocked(Task& task) {
  task.running_ = true;
  task.due_ = Clock::time_point::max();
  if (task.kind_ == Body::kLong) {
    // Its last run has ended.
    task.long_run_ = std::async(std::launch::async, [this, &task] { Run(task); });
    return;
  }
  mutex_.Unlock();
  Run(task);
  mutex_.Lock();
}

void Timer::Run(Task& task) {
  task.body_();
  MutexLock lock(mutex_);
  // RunSoon may have asked for the next call meanwhile.
  task.due_ = std::min(task.due_, Clock::now() + task.period_);
  task.running_ = false;
  changed_.NotifyAll();
}

}  // namespace attnbias
