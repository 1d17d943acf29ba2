// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/attempts.h"

#include <algorithm>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/src/rpc_status.h"
#include "client/cpp/src/unreached.h"

namespace attnbias {

Attempts::Attempts(const ClientOptions& options, grpc::Channel* channel,
                   BearerToken* token, std::atomic<bool>* reached)
    : options_(options),
      channel_(channel),
      token_(token),
      reached_(*reached),
      deadline_(absl::Now() + options.timeout),
      connect_deadline_(absl::Now() +
                        std::min(options.connect_timeout, options.timeout)),
      state_(options.max_attempts,
             [random = std::minstd_rand(std::random_device{}())]() mutable {
               return std::uniform_real_distribution<>(0, 1)(random);
             }) {}

bool Attempts::IsReached() const {
  if (!reached_ &&
      channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY) {
    reached_ = true;
  }
  return reached_;
}

absl::Time Attempts::End() const {
  return IsReached() ? deadline_ : connect_deadline_;
}

void Attempts::Prepare(grpc::ClientContext* context) const {
  bool has_failed = false;
  while (!IsReached() && !has_failed && absl::Now() < connect_deadline_) {
    const grpc_connectivity_state state =
        channel_->GetState(/*try_to_connect=*/true);
    has_failed = state == GRPC_CHANNEL_TRANSIENT_FAILURE;
    if (has_failed || state == GRPC_CHANNEL_READY) continue;
    channel_->WaitForStateChange(state, absl::ToChronoTime(connect_deadline_));
  }
  // An attempt that has failed to connect ends at once, and tells why.
  context->set_deadline(absl::ToChronoTime(has_failed ? deadline_ : End()));
  for (const auto& [key, value] : options_.metadata) {
    context->AddMetadata(key, value);
  }
  if (token_ != nullptr) {
    context->AddMetadata("authorization", token_->Authorization());
  }
}

absl::Status Attempts::ErrorOf(const grpc::Status& status) const {
  if (!IsReached()) {
    if (IsUnreached(status)) {
      return absl::UnavailableError(
          WhyAllUnreached(status.error_message(), options_));
    }
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return absl::UnavailableError(WhyAllUnreached(
          absl::StrCat("no connection within ",
                       absl::FormatDuration(std::min(options_.connect_timeout,
                                                     options_.timeout))),
          options_));
    }
  }
  return FromRpc(status, options_, token_ != nullptr);
}

bool Attempts::WaitAfter(const CallEnd& end) {
  const absl::Time now = absl::Now();
  const std::optional<absl::Duration> delay =
      state_.NextDelay(end, End() - now);
  if (!delay.has_value() || now + *delay >= End()) return false;
  if (options_.on_retry) options_.on_retry(ErrorOf(end.status));
  WaitUntil(now + *delay);
  return true;
}

// gRPC connects only while somebody waits on one of its queues. A thread that
// slept would not notice that a server is back.
void Attempts::WaitUntil(absl::Time end) const {
  while (absl::Now() < end) {
    channel_->WaitForStateChange(channel_->GetState(/*try_to_connect=*/true),
                                 absl::ToChronoTime(end));
  }
}

}  // namespace attnbias
