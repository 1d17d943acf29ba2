// SPDX-License-Identifier: Apache-2.0
#include "server/periodic_task.h"

#include <utility>

namespace attnbias {

PeriodicTask::PeriodicTask(std::chrono::milliseconds period,
                           std::function<void()> body)
    : period_(period), body_(std::move(body)), thread_([this] { Run(); }) {}

PeriodicTask::~PeriodicTask() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_all();
  thread_.join();
}

void PeriodicTask::RunSoon() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    soon_ = true;
  }
  woken_.notify_all();
}

void PeriodicTask::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    woken_.wait_for(lock, period_, [this] { return stopping_ || soon_; });
    if (stopping_) return;
    soon_ = false;
    lock.unlock();
    body_();
    lock.lock();
  }
}

}  // namespace attnbias
