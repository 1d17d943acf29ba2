// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/stall_watch.h"

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

StallWatch::Entry::Entry(StallWatch* watch, grpc_call* call, const Caller* caller)
    : watch_(*watch), call_(call), caller_(*caller) {
  MutexLock lock(watch_.mutex_);
  place_ = watch_.entries_.size();
  watch_.entries_.push_back(this);
}

StallWatch::Entry::~Entry() {
  MutexLock lock(watch_.mutex_);
  Entry* const last = watch_.entries_.back();
  watch_.entries_[place_] = last;
  last->place_ = place_;
  watch_.entries_.pop_back();
}

void StallWatch::Entry::WriteStarted() { write_started_ = Now(); }

void StallWatch::Entry::WriteDone() { write_started_ = 0; }

void StallWatch::Entry::SetIdle(bool idle) { idle_since_ = idle ? Now() : 0; }

absl::Status StallWatch::Entry::WhyClosed() const {
  MutexLock lock(watch_.mutex_);
  return why_closed_;
}

StallWatch::StallWatch(std::chrono::milliseconds progress_timeout,
                       std::chrono::milliseconds idle_timeout, const ByteBudget* budget,
                       Timer* timer)
    : progress_timeout_(progress_timeout),
      idle_timeout_(idle_timeout),
      budget_(*budget),
      task_(timer,
            std::clamp(std::min(progress_timeout / kCrowdedDivisor, idle_timeout / 4),
                       std::chrono::milliseconds(10), std::chrono::milliseconds(1000)),
            [this] { CloseStalled(); }) {}

size_t StallWatch::open_calls() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

void StallWatch::CloseStalled() {
  const int64_t now = Now();
  const auto passed = [now](int64_t since, std::chrono::nanoseconds timeout) {
    return since != 0 && since <= now - timeout.count();
  };
  Close([&](const Entry& entry) {
    if (passed(entry.write_started_, progress_timeout_)) {
      return absl::AbortedError("the client has stopped reading");
    }
    if (passed(entry.write_started_, progress_timeout_ / kCrowdedDivisor) &&
        budget_.WouldHaveTooMuch(0, entry.caller_.owner())) {
      return absl::AbortedError("the client has stopped reading, and others wait for the memory");
    }
    if (passed(entry.idle_since_, idle_timeout_)) {
      return absl::AbortedError("the client has stopped sending");
    }
    return absl::OkStatus();
  });
}

void StallWatch::CloseIdle(const absl::Status& why) {
  Close([&why](const Entry& entry) { return entry.idle_since_ != 0 ? why : absl::OkStatus(); });
}

void StallWatch::CloseAll(const absl::Status& why) {
  Close([&why](const Entry&) { return why; });
}

template <typename Why>
void StallWatch::Close(Why why) {
  // Calls are closed without the lock, since the end of a call takes it. A reference keeps each of
  // them alive.
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
