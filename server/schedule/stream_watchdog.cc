// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/stream_watchdog.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace attnbias {
namespace {

int64_t Now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

StreamWatchdog::Entry::Entry(StreamWatchdog* watchdog, grpc_call* call, const Caller* caller)
    : watchdog_(*watchdog), call_(call), caller_(*caller) {
  MutexLock lock(watchdog_.mutex_);
  watchdog_.entries_.insert(this);
}

StreamWatchdog::Entry::~Entry() {
  MutexLock lock(watchdog_.mutex_);
  watchdog_.entries_.erase(this);
}

void StreamWatchdog::Entry::WriteStarted() { write_started_ = Now(); }

void StreamWatchdog::Entry::SetIdle(bool idle) { idle_since_ = idle ? Now() : 0; }

absl::Status StreamWatchdog::Entry::WhyClosed() const {
  MutexLock lock(watchdog_.mutex_);
  return why_closed_;
}

StreamWatchdog::StreamWatchdog(std::chrono::milliseconds write_stall_timeout,
                               std::chrono::milliseconds idle_timeout, const ByteBudget* budget,
                               Timer* timer)
    : write_stall_timeout_(write_stall_timeout),
      idle_timeout_(idle_timeout),
      budget_(*budget),
      task_(timer,
            std::clamp(std::min(write_stall_timeout / kCrowdedDivisor, idle_timeout / 4),
                       std::chrono::milliseconds(10), std::chrono::milliseconds(1000)),
            [this] { CloseStalled(); }) {}

size_t StreamWatchdog::open_calls() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

void StreamWatchdog::CloseStalled() {
  const int64_t now = Now();
  const auto passed = [now](int64_t since, std::chrono::nanoseconds timeout) {
    return since != 0 && since <= now - timeout.count();
  };
  Close([&](const Entry& entry) {
    if (passed(entry.write_started_, write_stall_timeout_)) {
      return absl::AbortedError("the client has stopped reading");
    }
    if (passed(entry.write_started_, write_stall_timeout_ / kCrowdedDivisor) &&
        budget_.WouldExceedFairShare(0, entry.caller_.owner())) {
      return absl::AbortedError(
          "the client has stopped reading, and other callers are waiting for its memory");
    }
    if (passed(entry.idle_since_, idle_timeout_)) {
      return absl::AbortedError("the client has stopped sending");
    }
    return absl::OkStatus();
  });
}

void StreamWatchdog::CloseIdle(const absl::Status& why) {
  Close([&why](const Entry& entry) { return entry.idle_since_ != 0 ? why : absl::OkStatus(); });
}

void StreamWatchdog::CloseAll(const absl::Status& why) {
  Close([&why](const Entry&) { return why; });
}

template <typename Why>
void StreamWatchdog::Close(Why why) {
  // Closes the calls without holding the lock, since ending a call acquires it. A reference keeps
  // each call alive.
  std::vector<std::pair<grpc_call*, absl::Status>> calls;
  {
    MutexLock lock(mutex_);
    for (Entry* const entry : entries_) {
      if (!entry->why_closed_.ok()) continue;
      entry->why_closed_ = why(*entry);
      if (entry->why_closed_.ok()) continue;
      grpc_call_ref(entry->call_);
      calls.emplace_back(entry->call_, entry->why_closed_);
    }
  }
  for (const auto& [call, status] : calls) {
    grpc_call_cancel_with_status(call, static_cast<grpc_status_code>(status.code()),
                                 std::string(status.message()).c_str(), nullptr);
    grpc_call_unref(call);
  }
}

}  // namespace attnbias
