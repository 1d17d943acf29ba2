// SPDX-License-Identifier: Apache-2.0
#include "server/run/signals.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

namespace attnbias {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP};

// Signals that end a process by default and ask this one for nothing. SIGPIPE:
// a peer that is gone is an error of one write. SIGXFSZ: so is a full log.
// Signals that ask for a core dump, such as SIGQUIT, keep their effect.
constexpr int kIgnored[] = {SIGPIPE, SIGXFSZ,   SIGUSR1, SIGUSR2, SIGALRM,
                            SIGPROF, SIGVTALRM, SIGPOLL, SIGPWR,  SIGSTKFLT};

// Where a handler writes the signal's number. It may interrupt any thread:
// libraries may have started some before main, and these block no signal.
int handler_fd = -1;

void Forward(int signal) {
  const int saved = errno;
  const auto number = static_cast<unsigned char>(signal);
  // A full pipe holds enough of them.
  [[maybe_unused]] const ssize_t written = write(handler_fd, &number, 1);
  errno = saved;
}

// Leaves alone what a library uses, as a profiler does SIGPROF.
void Ignore(int number) {
  struct sigaction now = {};
  sigaction(number, nullptr, &now);
  if (now.sa_handler == SIG_DFL) signal(number, SIG_IGN);
}

void Install(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

}  // namespace

Signals::Signals(std::function<void()> on_first)
    : on_first_(std::move(on_first)) {
  for (const int number : kIgnored) Ignore(number);
  for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) Ignore(number);
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  signal_fd_ = ends[0];
  handler_fd = ends[1];
  // A handler does not wait for room.
  fcntl(handler_fd, F_SETFL, O_NONBLOCK);
  Install(Forward);
  thread_ = std::thread([this] { HandleSignals(); });
}

Signals::~Signals() {
  Install(SIG_DFL);
  close(handler_fd);
  thread_.join();
  close(signal_fd_);
}

void Signals::OnHangup(std::function<void()> on_hangup) {
  MutexLock lock(mutex_);
  on_hangup_ = std::move(on_hangup);
}

int Signals::Next() {
  for (;;) {
    unsigned char number = 0;
    const ssize_t size = read(signal_fd_, &number, 1);
    if (size == 0) return 0;  // the destructor has closed the other end
    if (size < 0) continue;
    if (number != SIGHUP) return number;
    HangUp();
  }
}

void Signals::HangUp() {
  mutex_.Lock();
  const std::function<void()> on_hangup = on_hangup_;
  mutex_.Unlock();
  if (on_hangup) on_hangup();
}

void Signals::HandleSignals() {
  if (Next() == 0) return;
  on_first_();
  received_.count_down();
  const int second = Next();
  if (second != 0) std::_Exit(128 + second);
}

}  // namespace attnbias
