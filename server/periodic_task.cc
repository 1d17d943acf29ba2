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
  stop_requested_.notify_all();
  thread_.join();
}

void PeriodicTask::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (
      !stop_requested_.wait_for(lock, period_, [this] { return stopping_; })) {
    lock.unlock();
    body_();
    lock.lock();
  }
}

}  // namespace attnbias
