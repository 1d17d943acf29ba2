// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/attempts.h"

#include <optional>
#include <random>

#include "absl/time/clock.h"
#include "client/cpp/src/rpc_status.h"

namespace attnbias {
namespace {

// gRPC connects only while somebody waits on one of its queues. A thread that
// slept would not notice that a server is back.
void WaitUntil(grpc::Channel& channel, absl::Time end) {
  while (channel.WaitForStateChange(channel.GetState(/*try_to_connect=*/true),
                                    absl::ToChronoTime(end))) {
  }
}

}  // namespace

Attempts::Attempts(const ClientOptions& options, grpc::Channel* channel,
                   BearerToken* token)
    : options_(options),
      channel_(channel),
      token_(token),
      deadline_(absl::Now() + options.timeout),
      state_(options.max_attempts,
             [random = std::minstd_rand(std::random_device{}())]() mutable {
               return std::uniform_real_distribution<>(0, 1)(random);
             }) {}

void Attempts::Prepare(grpc::ClientContext* context) const {
  context->set_deadline(absl::ToChronoTime(deadline_));
  for (const auto& [key, value] : options_.metadata) {
    context->AddMetadata(key, value);
  }
  if (token_ != nullptr) {
    context->AddMetadata("authorization", token_->Authorization());
  }
}

absl::Status Attempts::ErrorOf(const grpc::Status& status) const {
  return FromRpc(status, options_, token_ != nullptr);
}

bool Attempts::WaitAfter(const CallEnd& end) {
  const absl::Time now = absl::Now();
  const std::optional<absl::Duration> delay =
      state_.NextDelay(end, deadline_ - now);
  if (!delay.has_value() || now + *delay >= deadline_) return false;
  if (options_.on_retry) options_.on_retry(ErrorOf(end.status));
  WaitUntil(*channel_, now + *delay);
  return true;
}

}  // namespace attnbias
