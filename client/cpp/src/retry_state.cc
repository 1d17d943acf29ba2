// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/retry_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "client/cpp/src/rpc_status.h"

namespace attnbias {
namespace {

// Shorter than a restart takes, long enough not to hammer.
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

RetryState::RetryState(std::optional<int> max_attempts,
                       std::function<double()> jitter)
    : max_attempts_(max_attempts), jitter_(std::move(jitter)) {}

absl::Duration RetryState::Backoff(absl::Duration left) {
  absl::Duration backoff = kFirstBackoff;
  for (int i = 1; i < failures_ && backoff < kLargestBackoff; ++i) {
    backoff *= 2;
  }
  // Full jitter: callers that failed together do not come back together.
  // At most half of the time, so that there is some for a last attempt.
  return std::min({backoff, kLargestBackoff, left / 2}) * jitter_();
}

std::optional<absl::Duration> RetryState::NextDelay(const CallEnd& end,
                                                    absl::Duration left) {
  const std::optional<absl::Duration> info = RetryDelay(end.status);
  const grpc::StatusCode code = end.status.error_code();
  const bool worth_it =
      code == grpc::StatusCode::UNAVAILABLE ||
      code == grpc::StatusCode::ABORTED ||
      code == grpc::StatusCode::CANCELLED ||
      // A stream that a proxy or a dying server cut.
      absl::StrContains(end.status.error_message(), "RST_STREAM") ||
      (code == grpc::StatusCode::RESOURCE_EXHAUSTED &&
       (info.has_value() || end.pushback.has_value()));
  if (!worth_it || ++failures_ == max_attempts_ || left < kFirstBackoff) {
    return std::nullopt;
  }
  absl::Duration least = info.value_or(absl::ZeroDuration());
  if (end.pushback.has_value()) {
    int64_t milliseconds = 0;
    if (!absl::SimpleAtoi(absl::string_view(*end.pushback), &milliseconds) ||
        milliseconds < 0) {
      return std::nullopt;
    }
    least = absl::Milliseconds(milliseconds);
  }
  return std::max(Backoff(left), least);
}

}  // namespace attnbias
