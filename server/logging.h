// SPDX-License-Identifier: Apache-2.0
// The log, on the standard error: one line per event, one per call.
#ifndef ATTNBIAS_SERVER_LOGGING_H_
#define ATTNBIAS_SERVER_LOGGING_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace attnbias {

// `format` is "text" or "json"; `level` is "debug", "info", "warning", "error"
// or "off". Before anything is logged.
void InitLogging(std::string_view format, const std::string& level);

void LogInfo(std::string_view message);
void LogWarning(std::string_view message);
void LogError(std::string_view message);

// Lines that the standard error did not take at once, and that are lost.
int64_t LogLinesDropped();

// How one call went.
struct AccessLine {
  std::string_view method;
  std::string peer;
  absl::StatusCode code = absl::StatusCode::kOk;
  double milliseconds = 0;
  // Of tensors, sent.
  int64_t bytes = 0;
  // Empty when the request was refused before they were known.
  std::string_view encoding;
  std::string_view fingerprint;
  // Empty when the call went well.
  std::string error;
};

// Whether LogAccess would write anything of a call that ended so. One that
// failed is a warning.
bool LogsAccess(absl::StatusCode code);
void LogAccess(const AccessLine& line);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_LOGGING_H_
