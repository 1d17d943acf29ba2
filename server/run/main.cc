// SPDX-License-Identifier: Apache-2.0
// The program: from its arguments to its exit code.
#include <malloc.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <variant>

#include "absl/status/statusor.h"
#include "core/base/caller.h"
#include "server/observe/logging.h"
#include "server/observe/tracing.h"
#include "server/run/config.h"
#include "server/run/server.h"
#include "server/run/signals.h"
#include "server/schedule/timer.h"

namespace attnbias {
namespace {

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
