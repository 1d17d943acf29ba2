// SPDX-License-Identifier: Apache-2.0
#include "server/stall_watch.h"

#include <algorithm>
#include <vector>

namespace attnbias {
namespace {

int64_t Now() {
  return std::chrono::nanoseconds(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

StallWatch::Entry::Entry(StallWatch* watch, grpc_call* call)
    : watch_(watch), call_(call) {
  std::lock_guard<std::mutex> lock(watch_->mutex_);
  watch_->entries_.insert(this);
}

StallWatch::Entry::~Entry() {
  std::lock_guard<std::mutex> lock(watch_->mutex_);
  watch_->entries_.erase(this);
}

void StallWatch::Entry::WriteStarted() { write_started_ = Now(); }

void StallWatch::Entry::WriteDone() { write_started_ = 0; }

StallWatch::StallWatch(std::chrono::milliseconds timeout)
    : timeout_(timeout),
      task_(std::clamp(timeout / 4, std::chrono::milliseconds(10),
                       std::chrono::milliseconds(1000)),
            [this] { CloseStalled(); }) {}

void StallWatch::CloseStalled() {
  const int64_t deadline = Now() - std::chrono::nanoseconds(timeout_).count();
  Close(GRPC_STATUS_ABORTED, "the client has stopped reading",
        [deadline](Entry& entry) {
          const int64_t started = entry.write_started_;
          return started != 0 && started <= deadline &&
                 !entry.stalled_.exchange(true);
        });
}

void StallWatch::CloseIdle() {
  Close(GRPC_STATUS_UNAVAILABLE, "the server is draining; try another",
        [](Entry& entry) {
          return entry.idle_ && !entry.dismissed_.exchange(true);
        });
}

template <typename Choose>
void StallWatch::Close(grpc_status_code code, const char* reason,
                       Choose choose) {
  // Closed without the lock, for which the end of a call waits: each holds a
  // reference of its own.
  std::vector<grpc_call*> calls;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (Entry* entry : entries_) {
      if (!choose(*entry)) continue;
      grpc_call_ref(entry->call_);
      calls.push_back(entry->call_);
    }
  }
  for (grpc_call* call : calls) {
    grpc_call_cancel_with_status(call, code, reason, nullptr);
    grpc_call_unref(call);
  }
}

}  // namespace attnbias
