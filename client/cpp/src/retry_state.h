// SPDX-License-Identifier: Apache-2.0
// Decides whether and when a failed call is tried again. Neither waits nor
// knows the time.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace attnbias {

// How a call ended.
struct CallEnd {
  grpc::Status status;
  // Trailing metadata `grpc-retry-pushback-ms`, if sent.
  std::optional<std::string> pushback;

  // Only after the call has ended.
  static CallEnd Of(grpc::Status status, const grpc::ClientContext& context);
};

// Of one call, from its first attempt to its last.
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

}  // namespace attnbias
