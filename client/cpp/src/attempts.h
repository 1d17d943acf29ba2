// SPDX-License-Identifier: Apache-2.0
// The attempts of one call, until it succeeds or its time is over: whether and
// when a failed call is tried again.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "attnbias/client.h"
#include "client/cpp/src/security.h"

namespace attnbias {

// How a call ended.
struct CallEnd {
  grpc::Status status;
  // Trailing metadata `grpc-retry-pushback-ms`, if sent.
  std::optional<std::string> pushback;

  // Only after the call has ended.
  static CallEnd Of(grpc::Status status, const grpc::ClientContext& context);
};

// Decides about the attempts of one call. Neither waits nor knows the time.
class RetryState {
 public:
  // `jitter` gives numbers in [0, 1).
  RetryState(std::optional<int> max_attempts, std::function<double()> jitter);

  // How long to wait before the next attempt, or nothing if this end is final.
  // `left` is what is left of the call's time.
  // The least wait is the pushback, or else RetryInfo's. A negative pushback
  // forbids another attempt.
  std::optional<absl::Duration> NextDelay(const CallEnd& end,
                                          absl::Duration left);

  // An attempt brought something: count from the beginning.
  void Progressed() { failures_ = 0; }

 private:
  absl::Duration Backoff(absl::Duration left);

  const std::optional<int> max_attempts_;
  const std::function<double()> jitter_;
  int failures_ = 0;
};

// For one thread.
class Attempts {
 public:
  // All outlive this; `token` may be null. The timeouts count from now on.
  // `reached` is whether the client has ever had a connection.
  Attempts(const ClientOptions& options, grpc::Channel* channel,
           BearerToken* token, std::atomic<bool>* reached);

  // For the next attempt: metadata and token, and what is left of the time:
  // none if there was never a connection, and connect_timeout is over. Waits
  // until the first connection is made or has failed.
  void Prepare(grpc::ClientContext* context) const;

  // How an attempt that ended so is told.
  absl::Status ErrorOf(const grpc::Status& status) const;

  // Returns when the next attempt may begin; false where there is none.
  bool WaitAfter(const CallEnd& end);

  // An attempt brought something.
  void Progressed() { state_.Progressed(); }

 private:
  bool IsReached() const;
  // When attempts end: until the first connection they have less time.
  absl::Time End() const;
  void WaitUntil(absl::Time end) const;

  const ClientOptions& options_;
  grpc::Channel* const channel_;
  BearerToken* const token_;
  std::atomic<bool>& reached_;
  const absl::Time deadline_;
  const absl::Time connect_deadline_;
  RetryState state_;
};

}  // namespace attnbias
