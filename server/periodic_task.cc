// SPDX-License-Identifier: Apache-2.0
#include "server/periodic_task.h"

#include <utility>

namespace attnbias {

PeriodicTask::PeriodicTask(std::chrono::milliseconds period,
                           std::function<void()> body)
    : period_(period), body_(std::move(body)), thread_([this] { Repeat(); }) {}

PeriodicTask::~PeriodicTask() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  woken_.NotifyAll();
  thread_.join();
}

void PeriodicTask::RunSoon() {
  {
    MutexLock lock(mutex_);
    soon_ = true;
  }
  woken_.NotifyAll();
}

void PeriodicTask::Repeat() {
  while (WaitForNext()) body_();
}

bool PeriodicTask::WaitForNext() {
  const auto due = std::chrono::steady_clock::now() + period_;
  MutexLock lock(mutex_);
  while (!stopping_ && !soon_ && woken_.WaitUntil(mutex_, due)) continue;
  soon_ = false;
  return !stopping_;
}

}  // namespace attnbias
