// SPDX-License-Identifier: Apache-2.0
// The log, on standard error: one line per event, and one per call.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/observe/phases.h"

namespace attnbias {

struct LogOptions {
  // "text" or "json".
  std::string format = "text";
  // "debug", "info", "warning", "error" or "off".
  std::string level = "info";
  // Which calls are logged, regardless of the level: "off", "errors" or "all".
  std::string access = "all";
};

// Must be called before anything is logged.
void InitLogging(const LogOptions& options);

void LogInfo(std::string_view message);
void LogWarning(std::string_view message);
void LogError(std::string_view message);

// Returns the number of lines that were dropped because standard error was not ready.
int64_t LogLinesDropped();
// Returns the number of failed TLS handshakes, according to gRPC's log.
int64_t FailedHandshakes();

// A call that has ended.
struct AccessLine {
  std::string_view method;
  std::string peer;
  // The caller's name; empty if there is none.
  std::string_view identity;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::chrono::steady_clock::time_point start;
  std::chrono::nanoseconds duration{0};
  PhaseTimes phases{};
  std::span<const PhaseClock::Change> changes;
  // Number of tensor bytes sent.
  int64_t bytes = 0;
  // Both are empty if the request was rejected before they were known.
  std::string_view encoding;
  std::string_view fingerprint;
  std::string request_id;
  // A W3C traceparent, from TraceCall.
  std::string trace;
  // Empty if the call succeeded.
  std::string error;
};

// Returns whether calls that end with this code are logged.
bool LogsAccess(absl::StatusCode code);
// Logs a call, as a warning if it failed.
void LogAccess(const AccessLine& line);

}  // namespace attnbias
