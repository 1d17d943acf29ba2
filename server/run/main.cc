// SPDX-License-Identifier: Apache-2.0
// The program: arguments, signals and exit code.
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <latch>
#include <memory>
#include <thread>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/base/executor.h"
#include "server/observe/logging.h"
#include "server/observe/tracing.h"
#include "server/run/config.h"
#include "server/run/server.h"
#include "server/schedule/timer.h"

namespace attnbias {
namespace {

// Signals that are ignored because they would end the process by default. A closed connection
// (SIGPIPE) or a full log (SIGXFSZ) affects only one write. Signals that request a core dump, such
// as SIGQUIT, keep their effect.
constexpr int kIgnored[] = {SIGPIPE, SIGXFSZ,   SIGUSR1, SIGUSR2, SIGALRM,
                            SIGPROF, SIGVTALRM, SIGPOLL, SIGPWR,  SIGSTKFLT};

// The pipe to which the handler writes the signal number. The handler may interrupt any thread,
// since no signals are blocked in threads that libraries start before main().
int handler_fd = -1;

void Forward(int signal) {
  const int saved = errno;
  const auto number = static_cast<unsigned char>(signal);
  // A full pipe already holds enough signals.
  [[maybe_unused]] const ssize_t written = write(handler_fd, &number, 1);
  errno = saved;
}

// Ignores a signal unless a library has set a handler for it, as profilers do for SIGPROF.
void Ignore(int number) {
  struct sigaction now = {};
  sigaction(number, nullptr, &now);
  if (now.sa_handler == SIG_DFL) signal(number, SIG_IGN);
}

// Drains on the first SIGTERM or SIGINT, ends the process on the second, and reloads on SIGHUP.
// Ignores kIgnored and the real-time signals.
class Signals {
 public:
  // Handles signals on a separate thread, which may call any function, until the process ends.
  Signals();

  // Cancelled by the first SIGTERM or SIGINT.
  const CallerPtr& stop() const { return stop_; }
  // Waits for that cancellation.
  void Wait() const { received_.wait(); }
  // Makes SIGHUP reload `server`, which lives until the process ends. Before this call, SIGHUP has
  // no effect.
  void ReloadOnHangup(Server* server) { server_ = server; }

 private:
  [[noreturn]] void HandleSignals(int fd);

  const CallerPtr stop_ = std::make_shared<Caller>();
  std::latch received_{1};
  std::atomic<Server*> server_ = nullptr;
};

Signals::Signals() {
  for (const int number : kIgnored) Ignore(number);
  for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) Ignore(number);
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  handler_fd = ends[1];
  // A handler must not wait for space in the pipe.
  fcntl(handler_fd, F_SETFL, O_NONBLOCK);
  struct sigaction action = {};
  action.sa_handler = Forward;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    sigaction(signal, &action, nullptr);
  }
  std::thread([this, fd = ends[0]] { HandleSignals(fd); }).detach();
}

void Signals::HandleSignals(int fd) {
  for (;;) {
    unsigned char number = 0;
    if (read(fd, &number, 1) != 1) continue;
    if (number == SIGHUP) {
      if (Server* const server = server_) server->Reload();
    } else if (stop_->cancelled()) {
      std::_Exit(128 + number);
    } else {
      stop_->Cancel();
      received_.count_down();
    }
  }
}

// Limits the freed memory that glibc keeps. By default, glibc uses eight arenas per processor and
// keeps ever larger blocks. This makes it use only a few arenas and release blocks larger than a
// message.
void KeepHeapSmall() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 4 << 20);
  mallopt(M_ARENA_MAX, 8);
#endif
}

// Releases small freed blocks, such as gRPC's after a burst of calls.
void TrimHeap() {
#ifdef __GLIBC__
  constexpr size_t kKeptBytes = size_t{16} << 20;
  if (mallinfo2().fordblks > kKeptBytes) malloc_trim(0);
#endif
}
constexpr std::chrono::seconds kHeapPeriod(1);

// Time to export spans still queued when the last call ends.
constexpr std::chrono::milliseconds kLastSpans(1000);

int Failed(const absl::Status& status, int exit_code = 1) {
  LogError(std::string(status.message()));
  return exit_code;
}

int Serve(const ServerConfig& config) {
  static Signals& signals = *new Signals();
  for (const std::string& warning : config.warnings) LogWarning(warning);
  absl::StatusOr<std::unique_ptr<Server>> created = Server::Create(config);
  if (!created.ok()) return Failed(created.status(), 2);
  const std::unique_ptr<Server> server = *std::move(created);
  LogInfo(server->Summary());
  if (config.check_config) {
    std::fputs(config.effective.c_str(), stdout);
    return 0;
  }
  StartTracing();
  absl::Status status = server->Start();
  if (!status.ok()) return Failed(status);
  const Timer::Task heap_task(&server->timer(), kHeapPeriod, TrimHeap, Timer::On::kOwnThread);
  signals.ReloadOnHangup(server.get());
  std::printf("listening on %s\nmetrics on %s\n", server->address().c_str(),
              server->metrics_address().c_str());
  if (!config.probe_listen.empty()) {
    std::printf("probes on %s\n", server->probe_address().c_str());
  }
  std::fflush(stdout);
  status = server->BecomeReady(signals.stop());
  if (!status.ok() && !signals.stop()->cancelled()) std::_Exit(Failed(status));
  signals.Wait();
  server->Drain();
  FlushSpans(kLastSpans);
  // Stopping the metrics listener would needlessly wait for idle scrapers.
  std::_Exit(0);
}

int Run(int argc, char** argv) try {
  // Debian 12's Abseil otherwise tracks the order in which gRPC acquires locks, under one lock for
  // the whole process.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  KeepHeapSmall();
  const auto parsed = ParseConfig(argc, argv);
  if (const auto* exit = std::get_if<ExitCode>(&parsed)) return exit->value;
  const auto& config = std::get<ServerConfig>(parsed);
  InitLogging(config.log);
  return Serve(config);
} catch (const std::exception& error) {
  std::fprintf(stderr, "attnbias-server: %s\n", error.what());
  std::_Exit(1);  // not enough memory or threads to start
}

}  // namespace
}  // namespace attnbias

int main(int argc, char** argv) { return attnbias::Run(argc, argv); }
