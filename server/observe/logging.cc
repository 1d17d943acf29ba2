// SPDX-License-Identifier: Apache-2.0
#include "server/observe/logging.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <memory>
#include <mutex>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "proto/grpc_versions.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/spdlog.h"

namespace attnbias {
namespace {

// Set by InitLogging.
bool as_json = false;

std::atomic<int64_t> failed_handshakes = 0;
std::atomic<int64_t> lines_dropped = 0;

// Writes lines to standard error. Drops lines for which it would have to wait, and counts them.
// spdlog's asynchronous logger is not used, because it does not count the lines that its sink
// cannot write, and because its queue is lost if the process crashes.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    // A pipe that is ready accepts this many bytes in one write.
    if (line.size() > PIPE_BUF) {
      line.resize(PIPE_BUF);
      line[PIPE_BUF - 1] = '\n';
    }
    pollfd ready = {STDERR_FILENO, POLLOUT, 0};
    if (poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0 ||
        write(STDERR_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      ++lines_dropped;
    }
  }
  void flush_() override {}
};

spdlog::logger& Logger() {
  static spdlog::logger& logger = *new spdlog::logger("attnbias", std::make_shared<StderrSink>());
  return logger;
}

// Logs calls, regardless of --log-level.
spdlog::logger& AccessLogger() {
  static spdlog::logger& logger = *new spdlog::logger("access", Logger().sinks().front());
  return logger;
}

spdlog::level::level_enum LevelOf(absl::StatusCode code) {
  return code == absl::StatusCode::kOk ? spdlog::level::info : spdlog::level::warn;
}

// Returns the text as a JSON string, with invalid UTF-8 replaced.
std::string Json(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Returns the message as one line, with control characters escaped.
std::string OneLine(std::string_view message) {
  if (as_json) return Json(message);
  if (absl::c_none_of(message, absl::ascii_iscntrl)) return std::string(message);
  return absl::Utf8SafeCEscape({message.data(), message.size()});
}

std::string Quoted(std::string_view text) {
  return as_json ? Json(text) : fmt::format("{:?}", text);
}

// Returns the text as one word, quoted if necessary.
std::string Word(std::string_view text) {
  const bool quoted = as_json || !absl::c_all_of(text, absl::ascii_isgraph);
  return quoted ? Quoted(text) : std::string(text);
}

// Avoids floating-point formatting, which would account for most of the cost of logging a call.
std::string Milliseconds(std::chrono::nanoseconds time) {
  constexpr int64_t kNanoseconds = 1'000'000;
  return absl::StrCat(time.count() / kNanoseconds, ".",
                      absl::Dec(time.count() % kNanoseconds, absl::kZeroPad6));
}

void Log(spdlog::level::level_enum level, std::string_view message) {
  if (Logger().should_log(level)) Logger().log(level, OneLine(message));
}

// Redirects libraries' log lines to this log.
void LogLibraries(LibraryLogLevel level, std::string_view line) {
  if (line.starts_with("Handshake failed")) {
    ++failed_handshakes;
    return LogWarning(line);
  }
  Log(level == LibraryLogLevel::kError     ? spdlog::level::err
      : level == LibraryLogLevel::kWarning ? spdlog::level::warn
                                           : spdlog::level::debug,
      line);
}

}  // namespace

void InitLogging(const LogOptions& options) {
  as_json = options.format == "json";
  AccessLogger().set_level(options.access == "all"      ? spdlog::level::info
                           : options.access == "errors" ? spdlog::level::warn
                                                        : spdlog::level::off);
  Logger().set_level(spdlog::level::from_str(options.level));
  LogLibrariesBy(&LogLibraries);
  Logger().set_pattern(as_json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%fZ","level":"%l","message":%v})"
                               : "%Y-%m-%dT%H:%M:%S.%fZ %l %v",
                       spdlog::pattern_time_type::utc);
}

void LogInfo(std::string_view message) { Log(spdlog::level::info, message); }

void LogWarning(std::string_view message) { Log(spdlog::level::warn, message); }

void LogError(std::string_view message) { Log(spdlog::level::err, message); }

int64_t LogLinesDropped() { return lines_dropped; }

int64_t FailedHandshakes() { return failed_handshakes; }

bool LogsAccess(absl::StatusCode code) { return AccessLogger().should_log(LevelOf(code)); }

void LogAccess(const AccessLine& line) {
  std::string text = OneLine("call");
  text.reserve(512);
  const auto add = [&text](absl::string_view key, absl::string_view value) {
    absl::StrAppend(&text, as_json ? ",\"" : " ", key, as_json ? "\":" : "=", value);
  };
  add("method", Word(line.method));
  add("peer", Word(line.peer));
  add("identity", Word(line.identity));
  add("code", Word(absl::StatusCodeToString(line.code)));
  add("milliseconds", Milliseconds(line.duration));
  for (size_t i = 0; i < kNumPhases; ++i) {
    add(absl::StrCat(std::string(kPhaseNames[i]), "_milliseconds"), Milliseconds(line.phases[i]));
  }
  add("bytes", absl::StrCat(line.bytes));
  add("encoding", Word(line.encoding));
  add("fingerprint", Word(line.fingerprint));
  add("request_id", Word(line.request_id));
  add("trace", Word(line.trace));
  add("error", Quoted(line.error));
  AccessLogger().log(LevelOf(line.code), text);
}

}  // namespace attnbias
