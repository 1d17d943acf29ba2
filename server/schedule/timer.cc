// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/timer.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace attnbias {

using Clock = std::chrono::steady_clock;

Timer::Task::Task(Timer* timer, std::chrono::milliseconds period, std::function<void()> body, On on)
    : timer_(*timer),
      period_(period),
      body_(std::move(body)),
      on_(on),
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

void Timer::Task::CallBody() {
  body_();
  MutexLock lock(timer_.mutex_);
  // RunSoon may have requested the next call in the meantime.
  due_ = std::min(due_, Clock::now() + period_);
  running_ = false;
  timer_.changed_.NotifyAll();
}

bool Timer::Task::StartThread() try {
  // Joins the thread of the previous call, which has ended.
  thread_ = std::jthread([this] { CallBody(); });
  return true;
} catch (const std::system_error&) {
  return false;
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
      task.running_ = true;
      task.due_ = Clock::time_point::max();
      if (task.on_ == On::kOwnThread && task.StartThread()) continue;
      mutex_.Unlock();
      task.CallBody();
      mutex_.Lock();
    }
  }
}

}  // namespace attnbias
