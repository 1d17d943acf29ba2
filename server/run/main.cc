// SPDX-License-Identifier: Apache-2.0
// The program: from its arguments to its exit code, and the signals between.
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <latch>
#include <memory>
#include <thread>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "core/base/caller.h"
#include "core/base/mutex.h"
#include "server/observe/logging.h"
#include "server/observe/tracing.h"
#include "server/run/config.h"
#include "server/run/server.h"
#include "server/schedule/timer.h"

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

// SIGTERM and SIGINT: the first asks for a drain, the second ends the process.
// SIGHUP asks for a reload. Other signals that would end the process by default
// are ignored, unless they ask for a core dump.
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

// glibc keeps what is freed, in eight arenas for each processor, and ever
// larger blocks. Here few arenas keep it, and blocks larger than a message go
// back.
void KeepHeapSmall() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 4 << 20);
  mallopt(M_ARENA_MAX, 8);
#endif
}

// What is freed in small pieces, as gRPC's memory of a burst of calls, it keeps
// all the same until it is asked.
void GiveHeapBack() {
#ifdef __GLIBC__
  constexpr size_t kKeptBytes = size_t{16} << 20;
  if (mallinfo2().fordblks > kKeptBytes) malloc_trim(0);
#endif
}
constexpr std::chrono::seconds kHeapPeriod(1);

// Time for spans that are queued when the last call ends.
constexpr std::chrono::milliseconds kLastSpans(1000);

// An exit code, after telling why.
int Failed(const absl::Status& status, int exit_code = 1) {
  LogError(std::string(status.message()));
  return exit_code;
}

int Serve(const ServerConfig& config) {
  const auto stop = std::make_shared<Caller>();
  Signals signals([stop] { stop->Cancel(); });
  for (const std::string& warning : config.warnings) LogWarning(warning);
  absl::StatusOr<std::unique_ptr<Server>> created = Server::Create(config);
  if (!created.ok()) return Failed(created.status(), 2);
  const std::shared_ptr<Server> server = *std::move(created);
  LogInfo(server->Summary());
  if (config.check_config) {
    std::fputs(config.effective.c_str(), stdout);
    return 0;
  }
  StartTracing();
  absl::Status status = server->Start();
  if (!status.ok()) return Failed(status);
  const Timer::Task heap_task(&server->timer(), kHeapPeriod, GiveHeapBack,
                              Timer::Body::kLong);
  signals.OnHangup([server] { server->Reload(); });
  std::printf("listening on %s\nmetrics on %s\n", server->address().c_str(),
              server->metrics_address().c_str());
  if (!config.probe_listen.empty()) {
    std::printf("probes on %s\n", server->probe_address().c_str());
  }
  std::fflush(stdout);
  status = server->BecomeReady(stop);
  if (!status.ok() && !stop->cancelled()) return Failed(status);
  signals.Wait();
  server->Drain();
  FlushSpans(kLastSpans);
  // Stopping the metrics listener would wait for idle scrapers, for nothing.
  std::_Exit(0);
}

int Run(int argc, char** argv) try {
  KeepHeapSmall();
  const auto parsed = ParseConfig(argc, argv);
  if (const auto* exit = std::get_if<ExitCode>(&parsed)) return exit->value;
  const auto& config = std::get<ServerConfig>(parsed);
  InitLogging(config.log);
  return Serve(config);
} catch (const std::exception& error) {
  std::fprintf(stderr, "attnbias-server: %s\n", error.what());
  return 1;  // no memory or no thread to begin with
}

}  // namespace
}  // namespace attnbias

int main(int argc, char** argv) { return attnbias::Run(argc, argv); }
