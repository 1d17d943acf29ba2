// SPDX-License-Identifier: Apache-2.0
// Which failed calls are retried, and when.
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

// Returns the next delay without a deadline.
std::optional<absl::Duration> Next(RetryState& retry, const CallEnd& end) {
  return retry.NextDelay(end, absl::InfiniteDuration());
}

double NoJitter() { return 1; }
double FullJitter() { return 0; }

TEST(RetryState, DoublesDelayUpToALimit) {
  RetryState retry(100, NoJitter);
  const CallEnd end = End(StatusCode::UNAVAILABLE);
  for (const int milliseconds : {100, 200, 400, 800, 1600, 2000, 2000}) {
    EXPECT_EQ(Next(retry, end), absl::Milliseconds(milliseconds));
  }
}

TEST(RetryState, UsesFullJitter) {
  RetryState retry(std::nullopt, FullJitter);
  EXPECT_EQ(Next(retry, End(StatusCode::UNAVAILABLE)), absl::ZeroDuration());
}

TEST(RetryState, AttemptsAreUnlimitedByDefault) {
  RetryState retry(std::nullopt, NoJitter);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(Next(retry, End(StatusCode::UNAVAILABLE)).has_value());
  }
}

TEST(RetryState, DelayIsAtMostHalfOfRemainingTime) {
  RetryState retry(std::nullopt, NoJitter);
  const CallEnd end = End(StatusCode::UNAVAILABLE);
  for (int i = 0; i < 8; ++i) Next(retry, end);
  EXPECT_EQ(retry.NextDelay(end, absl::Seconds(1)), absl::Milliseconds(500));
  EXPECT_EQ(retry.NextDelay(end, absl::Milliseconds(99)), std::nullopt);
}

TEST(RetryState, CountsAttemptsNotRetries) {
  RetryState retry(3, NoJitter);
  const CallEnd end = End(StatusCode::UNAVAILABLE);
  EXPECT_TRUE(Next(retry, end).has_value());
  EXPECT_TRUE(Next(retry, end).has_value());
  EXPECT_FALSE(Next(retry, end).has_value());
}

TEST(RetryState, ProgressResetsFailures) {
  RetryState retry(2, NoJitter);
  const CallEnd end = End(StatusCode::UNAVAILABLE);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Next(retry, end), absl::Milliseconds(100));
    retry.Progressed();
  }
}

TEST(RetryState, RetriesOnlyTransientCodes) {
  for (int code = 1; code <= 16; ++code) {
    RetryState retry(10, NoJitter);
    EXPECT_EQ(Next(retry, End(static_cast<StatusCode>(code))).has_value(),
              code == StatusCode::UNAVAILABLE || code == StatusCode::ABORTED ||
                  code == StatusCode::CANCELLED)
        << code;
  }
}

TEST(RetryState, RetriesResetConnections) {
  RetryState retry(10, NoJitter);
  CallEnd end = End(StatusCode::INTERNAL);
  EXPECT_FALSE(Next(retry, end).has_value());
  end.status = {StatusCode::INTERNAL, "Received RST_STREAM with error code 2"};
  EXPECT_TRUE(Next(retry, end).has_value());
}

TEST(RetryState, RetryInfoIsMinimumDelay) {
  RetryState retry(10, NoJitter);
  EXPECT_EQ(Next(retry, EndWithRetryInfo(StatusCode::RESOURCE_EXHAUSTED, 7)), absl::Seconds(7));
  EXPECT_EQ(Next(retry, EndWithRetryInfo(StatusCode::UNAVAILABLE, 0)), absl::Milliseconds(200));
  EXPECT_FALSE(Next(retry, EndWithRetryInfo(StatusCode::INTERNAL, 1)));
}

TEST(RetryState, PushbackOverridesRetryInfo) {
  RetryState retry(10, NoJitter);
  CallEnd end = EndWithRetryInfo(StatusCode::RESOURCE_EXHAUSTED, 7);
  end.pushback = "3000";
  EXPECT_EQ(Next(retry, end), absl::Seconds(3));
  // Does not make the client retry without a delay.
  end.pushback = "0";
  EXPECT_EQ(Next(retry, end), absl::Milliseconds(200));
  for (const char* forbidding : {"-1", "", "soon", "1.5"}) {
    end.pushback = forbidding;
    EXPECT_FALSE(Next(retry, end).has_value()) << forbidding;
  }
}

}  // namespace
}  // namespace attnbias::retry_state_test
