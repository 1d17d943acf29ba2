// SPDX-License-Identifier: Apache-2.0
// Attempts a call until it succeeds or times out. Decides whether and when a failed call is
// retried.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <optional>
#include <random>
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

  // Reads the trailers of a call that has ended.
  static CallEnd Of(grpc::Status status, const grpc::ClientContext& context);
};

// Returns the wait before the next attempt, or nothing if `end` is final. `failures` counts
// consecutive failed attempts, including this one. `left` is the time that remains for the call;
// `jitter` is in [0, 1). The minimum wait is the pushback, if the server sent one, or else
// RetryInfo's delay. A negative pushback forbids another attempt.
std::optional<absl::Duration> NextDelay(const CallEnd& end, int failures,
                                        std::optional<int> max_attempts, absl::Duration left,
                                        double jitter);

// Makes all attempts for one call, on one thread.
class Attempts {
 public:
  // All arguments outlive this object; `token` may be null. The timeouts start at construction.
  // `reached` is true once the client has had a connection.
  Attempts(const ClientOptions& options, grpc::Channel* channel, BearerToken* token,
           std::atomic<bool>* reached);

  // Waits until the first connection is made or has failed, then sets the metadata, token and
  // deadline for the next attempt. The deadline is in the past if no connection was made within
  // connect_timeout.
  void Prepare(grpc::ClientContext* context) const;

  // Returns the error for an attempt that ended with `status`.
  absl::Status ErrorOf(const grpc::Status& status) const;

  // Waits until the next attempt may begin; returns false if no attempt remains.
  bool WaitAfter(const CallEnd& end);

  // Resets the failure count after an attempt that received bytes.
  void Progressed() { failures_ = 0; }

 private:
  bool IsReached() const;
  // Returns the time at which attempts end: connect_timeout applies until the first connection.
  absl::Time End() const;
  void WaitUntil(absl::Time end) const;

  const ClientOptions& options_;
  grpc::Channel* const channel_;
  BearerToken* const token_;
  std::atomic<bool>& reached_;
  const absl::Time deadline_;
  const absl::Time connect_deadline_;
  std::minstd_rand random_{std::random_device{}()};
  int failures_ = 0;
};

}  // namespace attnbias
