// SPDX-License-Identifier: Apache-2.0
// The attempts of one call, until it succeeds or its time is over.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <atomic>

#include "absl/time/time.h"
#include "attnbias/client.h"
#include "client/cpp/src/bearer_token.h"
#include "client/cpp/src/retry_state.h"

namespace attnbias {

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
