// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <utility>

#include "core/base/executor.h"

namespace attnbias {

// An executor that runs tasks only on request, on the test's thread.
class ManualExecutor final : public Executor {
 public:
  void Schedule(CallerPtr /*caller*/, Task task) override { tasks_.push_back(std::move(task)); }
  void ScheduleBlocking(CallerPtr /*caller*/, Task task) override {
    blocking_.push_back(std::move(task));
  }
  void Yield() override {
    if (on_yield) on_yield();
  }
  int num_threads() const override { return 1; }

  // Runs the task that has waited longest; returns false if none is queued.
  bool RunOne() { return RunOneOf(tasks_); }
  // Does the same for non-preemptible tasks.
  bool RunOneBlocking() { return RunOneOf(blocking_); }
  void RunAll() {
    while (RunOne() || RunOneBlocking()) {
    }
  }

  std::function<void()> on_yield;

 private:
  static bool RunOneOf(std::deque<Task>& tasks) {
    if (tasks.empty()) return false;
    Task task = std::move(tasks.front());
    tasks.pop_front();
    task();
    return true;
  }

  std::deque<Task> tasks_;
  std::deque<Task> blocking_;
};

}  // namespace attnbias
