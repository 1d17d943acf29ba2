// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/timer.h"

#include <algorithm>
#include <utility>

namespace attnbias {

using Clock = std::chrono::steady_clock;

Timer::Task::Task(Timer* timer, std::chrono::milliseconds period, std::function<void()> body)
    : timer_(*timer), period_(period), body_(std::move(body)), due_(Clock::now() + period) {
  MutexLock lock(timer_.mutex_);
  timer_.tasks_.insert(this);
  timer_.changed_.NotifyAll();
}

Timer::Task::~Task() {
  MutexLock lock(timer_.mutex_);
  timer_.tasks_.erase(this);
  while (timer_.running_ == this) timer_.changed_.Wait(timer_.mutex_);
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
    const auto next =
        std::ranges::min_element(tasks_, {}, [](const Task* task) { return task->due_; });
    if (next == tasks_.end()) {
      changed_.Wait(mutex_);
    } else if (Task& task = **next; Clock::now() < task.due_) {
      changed_.WaitUntil(mutex_, task.due_);
    } else {
      running_ = &task;
      task.due_ = Clock::time_point::max();
      mutex_.Unlock();
      task.body_();
      mutex_.Lock();
      // RunSoon may have asked for the next call meanwhile.
      task.due_ = std::min(task.due_, Clock::now() + task.period_);
      running_ = nullptr;
      changed_.NotifyAll();
    }
  }
}

}  // namespace attnbias
