// SPDX-License-Identifier: Apache-2.0
// SIGTERM and SIGINT: the first asks for a drain, the second ends the process.
// SIGHUP asks for a reload. Other signals that would end the process by default
// are ignored, unless they ask for a core dump.
#pragma once

#include <functional>
#include <latch>
#include <thread>

#include "core/base/mutex.h"

namespace attnbias {

class Signals {
 public:
  // At most one at a time. Before it is made, signals have their usual effect.
  // `on_first` runs on a thread of this object, where anything may be done.
  explicit Signals(std::function<void()> on_first);
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals();

  // From now on `on_hangup` runs on SIGHUP, on that thread; before, SIGHUP does
  // nothing.
  void OnHangup(std::function<void()> on_hangup);

  // Returns once the first has come.
  void Wait() { received_.wait(); }

 private:
  void HandleSignals();
  // The next SIGTERM or SIGINT, or 0 when this object goes.
  int Next();
  void HangUp();

  const std::function<void()> on_first_;
  int signal_fd_;
  std::latch received_{1};
  Mutex mutex_;
  std::function<void()> on_hangup_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace attnbias
