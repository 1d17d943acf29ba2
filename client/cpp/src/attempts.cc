// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/attempts.h"

#include <algorithm>
#include <optional>
#include <random>

#include "absl/time/clock.h"
#include "client/cpp/src/rpc_status.h"

namespace attnbias {
namespace {

// Between two looks at whether an attempt is wanted any more.
constexpr absl::Duration kLook = absl::Milliseconds(20);

}  // namespace

Attempts::Attempts(const ClientOptions& options, grpc::Channel* channel,
                   BearerToken* token)
    : Attempts(options, channel, token, absl::Now() + options.timeout,
               /*group=*/nullptr) {}

Attempts::Attempts(const ClientOptions& options, grpc::Channel* channel,
                   BearerToken* token, absl::Time deadline, CallGroup* group)
    : options_(options),
      channel_(channel),
      token_(token),
      deadline_(deadline),
      group_(group),
      state_(options.max_attempts,
             [random = std::minstd_rand(std::random_device{}())]() mutable {
               return std::uniform_real_distribution<>(0, 1)(random);
             }) {}

Attempts Attempts::ForPart(grpc::Channel* channel, CallGroup* group) const {
  return Attempts(options_, channel, token_, deadline_, group);
}

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
  if (!IsWanted()) return false;
  const absl::Time now = absl::Now();
  const std::optional<absl::Duration> delay =
      state_.NextDelay(end, deadline_ - now);
  if (!delay.has_value() || now + *delay >= deadline_) return false;
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
