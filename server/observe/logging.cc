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
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "proto/grpc_versions.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/spdlog.h"

namespace attnbias {
namespace {

// Set once, before there are threads that log.
bool as_json = false;
enum class AccessLog : uint8_t { kOff, kErrors, kAll };
AccessLog access_log = AccessLog::kAll;

std::atomic<int64_t> failed_handshakes = 0;

// Writes lines to the standard error, and drops those that it would have to
// wait for: nobody who reads the log late may hold up calls.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  int64_t dropped() const { return dropped_; }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    // A pipe that is ready takes so much at once, and whole.
    if (line.size() > PIPE_BUF) {
      line.resize(PIPE_BUF);
      line[PIPE_BUF - 1] = '\n';
    }
    if (!Write({line.data(), line.size()})) ++dropped_;
  }
  void flush_() override {}

  static bool Write(std::string_view line) {
    pollfd ready = {STDERR_FILENO, POLLOUT, 0};
    return poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0 &&
           write(STDERR_FILENO, line.data(), line.size()) ==
               static_cast<ssize_t>(line.size());
  }

  std::atomic<int64_t> dropped_ = 0;
};

StderrSink& Sink() {
  static StderrSink& sink = *new StderrSink();
  return sink;
}

std::shared_ptr<spdlog::sinks::sink> SharedSink() {
  return {&Sink(), [](const auto*) {}};
}

spdlog::logger& Logger() {
  static spdlog::logger& logger = *new spdlog::logger("attnbias", SharedSink());
  return logger;
}

// Has a level of its own, which lets all calls pass.
spdlog::logger& AccessLogger() {
  static spdlog::logger& logger = *new spdlog::logger("access", SharedSink());
  return logger;
}

// Bytes that are not UTF-8 came from outside and are replaced.
std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

nlohmann::ordered_json JsonLine(spdlog::level::level_enum level,
                                std::string_view message) {
  const auto name = spdlog::level::to_string_view(level);
  return {{"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(),
                                    absl::UTCTimeZone())},
          {"level", std::string(name.data(), name.size())},
          {"message", message}};
}

// One line, whatever is in it.
std::string OneLine(std::string_view message) {
  if (absl::c_none_of(message, absl::ascii_iscntrl))
    return std::string(message);
  return absl::Utf8SafeCEscape({message.data(), message.size()});
}

// One word, whatever is in it.
std::string Word(std::string_view text) {
  if (absl::c_all_of(text, absl::ascii_isgraph)) return std::string(text);
  return fmt::format("{:?}", text);
}

void Log(spdlog::level::level_enum level, std::string_view message) {
  if (!Logger().should_log(level)) return;
  Logger().log(level,
               as_json ? Dump(JsonLine(level, message)) : OneLine(message));
}

std::string JsonCall(const AccessLine& line, spdlog::level::level_enum level,
                     const std::string& code) {
  using Milliseconds = std::chrono::duration<double, std::milli>;
  nlohmann::ordered_json json = JsonLine(level, "call");
  json["method"] = line.method;
  json["peer"] = line.peer;
  json["identity"] = line.identity;
  json["code"] = code;
  json["milliseconds"] = Milliseconds(line.duration).count();
  for (size_t i = 0; i < kNumPhases; ++i) {
    json[absl::StrCat(std::string(kPhaseNames[i]), "_milliseconds")] =
        Milliseconds(line.phases[i]).count();
  }
  json["bytes"] = line.bytes;
  json["encoding"] = line.encoding;
  json["fingerprint"] = line.fingerprint;
  json["request_id"] = line.request_id;
  json["trace"] = line.trace;
  json["error"] = line.error;
  return Dump(json);
}

absl::string_view View(std::string_view text) {
  return {text.data(), text.size()};
}

// Without doubles and formats, whose digits would take most of a call's line.
void AppendMilliseconds(std::string* text, std::chrono::nanoseconds time) {
  const int64_t microseconds = time.count() / 1000;
  absl::StrAppend(text, "milliseconds=", microseconds / 1000, ".",
                  absl::Dec(microseconds % 1000, absl::kZeroPad3));
}

std::string TextCall(const AccessLine& line, const std::string& code) {
  std::string text =
      absl::StrCat("call method=", View(line.method), " peer=", line.peer,
                   " identity=", Word(line.identity), " code=", code, " ");
  AppendMilliseconds(&text, line.duration);
  for (size_t i = 0; i < kNumPhases; ++i) {
    absl::StrAppend(&text, " ", View(kPhaseNames[i]), "_");
    AppendMilliseconds(&text, line.phases[i]);
  }
  absl::StrAppend(
      &text, " bytes=", line.bytes, " encoding=", View(line.encoding),
      " fingerprint=", View(line.fingerprint), " request_id=", line.request_id,
      " trace=", line.trace,
      " error=", line.error.empty() ? "\"\"" : fmt::format("{:?}", line.error));
  return text;
}

// What the libraries say is lines of this log too.
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
  access_log = options.access == "all"      ? AccessLog::kAll
               : options.access == "errors" ? AccessLog::kErrors
                                            : AccessLog::kOff;
  Logger().set_level(spdlog::level::from_str(options.level));
  LogLibrariesBy(&LogLibraries);
  if (as_json) {
    Logger().set_pattern("%v");
  } else {
    Logger().set_pattern("%Y-%m-%dT%H:%M:%S.%fZ %l %v",
                         spdlog::pattern_time_type::utc);
  }
}

void LogInfo(std::string_view message) { Log(spdlog::level::info, message); }

void LogWarning(std::string_view message) { Log(spdlog::level::warn, message); }

void LogError(std::string_view message) { Log(spdlog::level::err, message); }

int64_t LogLinesDropped() { return Sink().dropped(); }

int64_t FailedHandshakes() { return failed_handshakes; }

bool LogsAccess(absl::StatusCode code) {
  return access_log == AccessLog::kAll ||
         (access_log == AccessLog::kErrors && code != absl::StatusCode::kOk);
}

void LogAccess(const AccessLine& line) {
  const auto level = line.code == absl::StatusCode::kOk ? spdlog::level::info
                                                        : spdlog::level::warn;
  const std::string code = absl::StatusCodeToString(line.code);
  AccessLogger().log(
      level, as_json ? JsonCall(line, level, code) : TextCall(line, code));
}

}  // namespace attnbias
