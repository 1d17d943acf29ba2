// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/attempts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "client/cpp/src/rpc_status.h"

namespace attnbias {
namespace {

// Shorter than a restart, long enough not to overload a server.
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
constexpr absl::Duration kLargestBackoff = absl::Seconds(2);

}  // namespace

CallEnd CallEnd::Of(grpc::Status status, const grpc::ClientContext& context) {
  CallEnd end{.status = std::move(status), .pushback = std::nullopt};
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find("grpc-retry-pushback-ms");
  if (found != trailers.end()) {
    end.pushback = std::string(found->second.data(), found->second.size());
  }
  return end;
}

std::optional<absl::Duration> NextDelay(const CallEnd& end, int failures,
                                        std::optional<int> max_attempts, absl::Duration left,
                                        double jitter) {
  const std::optional<absl::Duration> info = RetryDelay(end.status);
  const grpc::StatusCode code = end.status.error_code();
  const bool worth_it = code == grpc::StatusCode::UNAVAILABLE ||
                        code == grpc::StatusCode::ABORTED || code == grpc::StatusCode::CANCELLED ||
                        // A stream that a proxy or a dying server has reset.
                        absl::StrContains(end.status.error_message(), "RST_STREAM") ||
                        (code == grpc::StatusCode::RESOURCE_EXHAUSTED &&
                         (info.has_value() || end.pushback.has_value()));
  if (!worth_it || failures == max_attempts || left < kFirstBackoff) {
    return std::nullopt;
  }
  absl::Duration least = info.value_or(absl::ZeroDuration());
  if (end.pushback.has_value()) {
    int64_t milliseconds = 0;
    if (!absl::SimpleAtoi(absl::string_view(*end.pushback), &milliseconds) || milliseconds < 0) {
      return std::nullopt;
    }
    least = absl::Milliseconds(milliseconds);
  }
  // Full jitter keeps callers that failed together from retrying together. Waiting for at most half
  // of the remaining time leaves time for a last attempt.
  const absl::Duration backoff = kFirstBackoff * (1 << std::min(failures - 1, 5));
  return std::max(std::min({backoff, kLargestBackoff, left / 2}) * jitter, least);
}

Attempts::Attempts(const ClientOptions& options, grpc::Channel* channel, BearerToken* token,
                   std::atomic<bool>* reached)
    : options_(options),
      channel_(channel),
      token_(token),
      reached_(*reached),
      deadline_(absl::Now() + options.timeout),
      connect_deadline_(absl::Now() + std::min(options.connect_timeout, options.timeout)) {}

bool Attempts::IsReached() const {
  if (!reached_ && channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY) {
    reached_ = true;
  }
  return reached_;
}

absl::Time Attempts::End() const { return IsReached() ? deadline_ : connect_deadline_; }

void Attempts::Prepare(grpc::ClientContext* context) const {
  bool has_failed = false;
  while (!IsReached() && !has_failed && absl::Now() < connect_deadline_) {
    const grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
    has_failed = state == GRPC_CHANNEL_TRANSIENT_FAILURE;
    if (has_failed || state == GRPC_CHANNEL_READY) continue;
    channel_->WaitForStateChange(state, absl::ToChronoTime(connect_deadline_));
  }
  // An attempt that has failed to connect ends immediately, with the reason.
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
      return absl::UnavailableError(WhyAllUnreached(status.error_message(), options_));
    }
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return absl::UnavailableError(WhyAllUnreached(
          absl::StrCat("no connection within ",
                       absl::FormatDuration(std::min(options_.connect_timeout, options_.timeout))),
          options_));
    }
  }
  return FromRpc(status, options_, token_ != nullptr);
}

bool Attempts::WaitAfter(const CallEnd& end) {
  const absl::Time now = absl::Now();
  const std::optional<absl::Duration> delay =
      NextDelay(end, ++failures_, options_.max_attempts, End() - now,
                std::uniform_real_distribution<>(0, 1)(random_));
  if (!delay.has_value() || now + *delay >= End()) return false;
  if (options_.on_retry) options_.on_retry(ErrorOf(end.status));
  WaitUntil(now + *delay);
  return true;
}

// gRPC connects only while a thread waits on one of its queues. A sleeping thread would not notice
// that a server is back.
void Attempts::WaitUntil(absl::Time end) const {
  while (absl::Now() < end) {
    channel_->WaitForStateChange(channel_->GetState(/*try_to_connect=*/true),
                                 absl::ToChronoTime(end));
  }
}

}  // namespace attnbias
