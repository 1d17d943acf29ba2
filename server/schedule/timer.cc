// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/timer.h"

#include <algorithm>
#include <utility>

namespace attnbias {

using Clock = std::chrono::steady_clock;

Timer::Timer(std::chrono::milliseconds period, std::function<void()> body)
    : period_(period),
      body_(std::move(body)),
      due_(Clock::now() + period),
      thread_([this] { RunUntilStopped(); }) {}

Timer::~Timer() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyOne();
  thread_.join();
}

void Timer::RunSoon() {
  MutexLock lock(mutex_);
  due_ = Clock::now();
  changed_.NotifyOne();
}

void Timer::RunUntilStopped() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (Clock::now() < due_) {
      changed_.WaitUntil(mutex_, due_);
      continue;
    }
    due_ = Clock::time_point::max();
    mutex_.Unlock();
    body_();
    mutex_.Lock();
    // RunSoon may have asked for the next call meanwhile.
    due_ = std::min(due_, Clock::now() + period_);
  }
}

}  // namespace attnbias
