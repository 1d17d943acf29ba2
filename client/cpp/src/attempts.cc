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
namespace {

// Between two looks at whether an attempt is wanted any more.
constexpr absl::Duration kLook = absl::Milliseconds(20);

}  // namespace

Attempts::Attempts(const ClientOptions& options, grpc::Channel* channel,
                   BearerToken* token, std::atomic<bool>* reached)
    : Attempts(options, channel, token, reached, absl::Now() + options.timeout,
               absl::Now() + std::min(options.connect_timeout, options.timeout),
               /*group=*/nullptr) {}

Attempts::Attempts(const ClientOptions& options, grpc::Channel* channel,
                   BearerToken* token, std::atomic<bool>* reached,
                   absl::Time deadline, absl::Time connect_deadline,
                   CallGroup* group)
    : options_(options),
      channel_(channel),
      token_(token),
      reached_(*reached),
      deadline_(deadline),
      connect_deadline_(connect_deadline),
      group_(group),
      state_(options.max_attempts,
             [random = std::minstd_rand(std::random_device{}())]() mutable {
               return std::uniform_real_distribution<>(0, 1)(random);
             }) {}

Attempts Attempts::ForPart(grpc::Channel* channel, CallGroup* group) const {
  return Attempts(options_, channel, token_, &reached_, deadline_,
                  connect_deadline_, group);
}

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
  if (!IsWanted()) return false;
  const absl::Time now = absl::Now();
  const std::optional<absl::Duration> delay =
      state_.NextDelay(end, End() - now);
  if (!delay.has_value() || now + *delay >= End()) return false;
  if (options_.on_retry) {
    const auto tell = [&] { options_.on_retry(ErrorOf(end.status)); };
    group_ == nullptr ? tell() : group_->Tell(tell);
  }
  return WaitUntil(now + *delay);
}

bool Attempts::IsWanted() const {
  return group_ == nullptr || group_->status().ok();
}

// gRPC connects only while somebody waits on one of its queues. A thread that
// slept would not notice that a server is back.
bool Attempts::WaitUntil(absl::Time end) const {
  for (absl::Time now = absl::Now(); now < end; now = absl::Now()) {
    if (!IsWanted()) return false;
    channel_->WaitForStateChange(
        channel_->GetState(/*try_to_connect=*/true),
        absl::ToChronoTime(std::min(end, now + kLook)));
  }
  return IsWanted();
}

}  // namespace attnbias
