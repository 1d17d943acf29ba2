// SPDX-License-Identifier: Apache-2.0
#include "server/signals.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace attnbias {

Signals::Signals(std::function<void()> on_first)
    : on_first_(std::move(on_first)) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  // A peer that is gone is an error of one write, not the end of the process.
  signal(SIGPIPE, SIG_IGN);
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this] { Run(); });
}

Signals::~Signals() {
  eventfd_write(stop_fd_, 1);
  thread_.join();
  close(signal_fd_);
  close(stop_fd_);
}

void Signals::OnHangup(std::function<void()> on_hangup) {
  std::lock_guard<std::mutex> lock(mutex_);
  on_hangup_ = std::move(on_hangup);
}

void Signals::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  came_.wait(lock, [this] { return received_; });
}

int Signals::Next() {
  for (;;) {
    pollfd ready[] = {{stop_fd_, POLLIN, 0}, {signal_fd_, POLLIN, 0}};
    if (poll(ready, 2, -1) < 0) continue;
    if (ready[0].revents != 0) return 0;
    signalfd_siginfo info = {};
    if (read(signal_fd_, &info, sizeof(info)) != sizeof(info)) continue;
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal != SIGHUP) return signal;
    HangUp();
  }
}

void Signals::HangUp() {
  std::unique_lock<std::mutex> lock(mutex_);
  const std::function<void()> on_hangup = on_hangup_;
  lock.unlock();
  if (on_hangup) on_hangup();
}

void Signals::Run() {
  if (Next() == 0) return;
  on_first_();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    received_ = true;
  }
  came_.notify_all();
  const int second = Next();
  if (second != 0) std::_Exit(128 + second);
}

}  // namespace attnbias
