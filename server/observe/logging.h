// SPDX-License-Identifier: Apache-2.0
// The log, on the standard error: one line per event, one per call.
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
  // Or "json".
  std::string format = "text";
  // The least that is logged: "debug", "info", "warning", "error" or "off".
  std::string level = "info";
  // The calls that are, whatever the level: "off", "errors" or "all".
  std::string access = "all";
};

// Before anything is logged.
void InitLogging(const LogOptions& options);

void LogInfo(std::string_view message);
void LogWarning(std::string_view message);
void LogError(std::string_view message);

// Lines that the standard error did not take at once, and that are lost.
int64_t LogLinesDropped();
// Returns the number of failed TLS handshakes, by gRPC's log.
int64_t FailedHandshakes();

// How one call went.
struct AccessLine {
  std::string_view method;
  std::string peer;
  // The caller's name; empty when it has none, or is not known.
  std::string_view identity;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::chrono::steady_clock::time_point start;
  std::chrono::nanoseconds duration{0};
  PhaseTimes phases{};
  std::span<const PhaseClock::Change> changes;
  // Of tensors, sent.
  int64_t bytes = 0;
  // Empty when the request was refused before they were known.
  std::string_view encoding;
  std::string_view fingerprint;
  std::string request_id;
  // A W3C traceparent, from TraceCall.
  std::string trace;
  // Empty when the call went well.
  std::string error;
};

// Whether calls that end so are to be logged.
bool LogsAccess(absl::StatusCode code);
// A call that failed is a warning.
void LogAccess(const AccessLine& line);

}  // namespace attnbias
