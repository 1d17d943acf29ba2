// SPDX-License-Identifier: Apache-2.0
// Tests which failed calls are retried, and when.
#include <gtest/gtest.h>

#include "client/cpp/src/attempts.h"
#include "tests/unit/cpp/fake_server.h"

namespace attnbias::retry_state_test {
namespace {

using grpc::StatusCode;

CallEnd End(StatusCode code) { return {.status = {code, "no"}, .pushback = std::nullopt}; }

CallEnd EndWithRetryInfo(StatusCode code, int64_t seconds) {
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_seconds(seconds);
  return {.status = WithDetail(code, "no", info), .pushback = std::nullopt};
}

// The failures of one call.
struct Failures {
  std::optional<int> max_attempts = std::nullopt;
  double jitter = 1;
  int count = 0;

  // Returns the delay after one more failure.
  std::optional<absl::Duration> Next(const CallEnd& end,
                                     absl::Duration left = absl::InfiniteDuration()) {
    return NextDelay(end, ++count, max_attempts, left, jitter);
  }
};

TEST(NextDelay, DoublesDelayUpToALimit) {
  Failures retry{.max_attempts = 100};
  const CallEnd end = End(StatusCode::UNAVAILABLE);
  for (const int milliseconds : {100, 200, 400, 800, 1600, 2000, 2000}) {
    EXPECT_EQ(retry.Next(end), absl::Milliseconds(milliseconds));
  }
}

TEST(NextDelay, UsesFullJitter) {
  Failures retry{.jitter = 0};
  EXPECT_EQ(retry.Next(End(StatusCode::UNAVAILABLE)), absl::ZeroDuration());
}

TEST(NextDelay, AttemptsAreUnlimitedByDefault) {
  Failures retry;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(retry.Next(End(StatusCode::UNAVAILABLE)).has_value());
  }
}

TEST(NextDelay, DelayIsAtMostHalfOfRemainingTime) {
  Failures retry;
  const CallEnd end = End(StatusCode::UNAVAILABLE);
  for (int i = 0; i < 8; ++i) retry.Next(end);
  EXPECT_EQ(retry.Next(end, absl::Seconds(1)), absl::Milliseconds(500));
  EXPECT_EQ(retry.Next(end, absl::Milliseconds(99)), std::nullopt);
}

TEST(NextDelay, CountsAttemptsNotRetries) {
  Failures retry{.max_attempts = 3};
  const CallEnd end = End(StatusCode::UNAVAILABLE);
  EXPECT_TRUE(retry.Next(end).has_value());
  EXPECT_TRUE(retry.Next(end).has_value());
  EXPECT_FALSE(retry.Next(end).has_value());
}

TEST(NextDelay, RetriesOnlyTransientCodes) {
  for (int code = 1; code <= 16; ++code) {
    Failures retry{.max_attempts = 10};
    EXPECT_EQ(retry.Next(End(static_cast<StatusCode>(code))).has_value(),
              code == StatusCode::UNAVAILABLE || code == StatusCode::ABORTED ||
                  code == StatusCode::CANCELLED)
        << code;
  }
}

TEST(NextDelay, RetriesResetConnections) {
  Failures retry{.max_attempts = 10};
  CallEnd end = End(StatusCode::INTERNAL);
  EXPECT_FALSE(retry.Next(end).has_value());
  end.status = {StatusCode::INTERNAL, "Received RST_STREAM with error code 2"};
  EXPECT_TRUE(retry.Next(end).has_value());
}

TEST(NextDelay, RetryInfoIsMinimumDelay) {
  Failures retry{.max_attempts = 10};
  EXPECT_EQ(retry.Next(EndWithRetryInfo(StatusCode::RESOURCE_EXHAUSTED, 7)), absl::Seconds(7));
  EXPECT_EQ(retry.Next(EndWithRetryInfo(StatusCode::UNAVAILABLE, 0)), absl::Milliseconds(200));
  EXPECT_FALSE(retry.Next(EndWithRetryInfo(StatusCode::INTERNAL, 1)));
}

TEST(NextDelay, PushbackOverridesRetryInfo) {
  Failures retry{.max_attempts = 10};
  CallEnd end = EndWithRetryInfo(StatusCode::RESOURCE_EXHAUSTED, 7);
  end.pushback = "3000";
  EXPECT_EQ(retry.Next(end), absl::Seconds(3));
  // A pushback of 0 does not make the client retry without a delay.
  end.pushback = "0";
  EXPECT_EQ(retry.Next(end), absl::Milliseconds(200));
  for (const char* forbidding : {"-1", "", "soon", "1.5"}) {
    end.pushback = forbidding;
    EXPECT_FALSE(retry.Next(end).has_value()) << forbidding;
  }
}

}  // namespace
}  // namespace attnbias::retry_state_test
