// SPDX-License-Identifier: Apache-2.0
#include "server/access/access.h"

#include <atomic>
#include <chrono>
#include <latch>
#include <limits>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace attnbias::access_test {
namespace {

using std::chrono::seconds;
using Clock = Pacer::Clock;

TEST(OnlyValue, IgnoresRepeatedKeys) {
  const ClientMetadata metadata = {{"once", "1"}, {"twice", "1"}, {"twice", "1"}, {"zero", ""}};
  EXPECT_EQ(OnlyValue(metadata, "once"), "1");
  EXPECT_EQ(OnlyValue(metadata, "twice"), "");
  EXPECT_EQ(OnlyValue(metadata, "zero"), "");
  EXPECT_EQ(OnlyValue(metadata, "absent"), "");
}

TEST(Pacer, DelaysByBytesAlreadyTaken) {
  Pacer pacer;
  const Clock::time_point begin = Clock::now();
  const Clock::time_point first = pacer.Take(1000, 100);
  EXPECT_GE(Clock::now(), first);
  EXPECT_EQ(pacer.Take(500, 100), first + seconds(10));
  EXPECT_EQ(pacer.Take(1, 100), first + seconds(15));
  EXPECT_GT(pacer.Backlog(), seconds(15) - (Clock::now() - begin));
}

TEST(Pacer, DoesNotDelayWithoutLimit) {
  Pacer pacer;
  for (int i = 0; i < 3; ++i) {
    const Clock::time_point at =
        pacer.Take(int64_t{1} << 60, std::numeric_limits<double>::infinity());
    EXPECT_GE(Clock::now(), at);
  }
  EXPECT_EQ(pacer.Backlog(), seconds(0));
}

TEST(Pacer, OneOfManyConcurrentTriesSucceeds) {
  Pacer pacer;
  std::atomic<int> sent = 0;
  std::latch begin(8);
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      begin.arrive_and_wait();
      if (pacer.TryTake(1000, 1)) ++sent;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sent, 1);
  EXPECT_GT(pacer.Backlog(), seconds(900));
}

TEST(Pacer, BacklogIsCapped) {
  Pacer pacer;
  pacer.Take(std::numeric_limits<int64_t>::max(), 1);
  EXPECT_LE(pacer.Backlog(), std::chrono::hours(24));
}

}  // namespace
}  // namespace attnbias::access_test
