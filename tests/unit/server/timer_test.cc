// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/timer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

#include "gtest/gtest.h"

namespace attnbias::timer_test {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

void Await(const std::atomic<int>& count, int least) {
  while (count < least) std::this_thread::sleep_for(milliseconds(1));
}

TEST(Timer, CallsBodyRepeatedly) {
  std::atomic<int> count = 0;
  const Timer timer(milliseconds(1), [&] { ++count; });
  Await(count, 5);
}

TEST(Timer, CallsBodyEarlyOnlyWhenRequested) {
  std::atomic<int> count = 0;
  Timer timer(hours(1), [&] { ++count; });
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(count, 0);
  timer.RunSoon();
  Await(count, 1);
  timer.RunSoon();
  Await(count, 2);
}

TEST(Timer, BodyRequestedWhileItRunsIsCalledOnceMore) {
  std::latch end(1);
  std::atomic<int> count = 0;
  Timer timer(hours(1), [&] {
    ++count;
    end.wait();
  });
  timer.RunSoon();
  Await(count, 1);
  timer.RunSoon();
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(count, 1);
  end.count_down();
  Await(count, 2);
}

TEST(Timer, OverrunningBodyStillPauses) {
  using Clock = std::chrono::steady_clock;
  std::atomic<int> count = 0;
  Clock::time_point ended = Clock::time_point::min();
  Clock::duration shortest = hours(1);
  {
    const Timer timer(milliseconds(20), [&] {
      if (count > 0) shortest = std::min(shortest, Clock::now() - ended);
      std::this_thread::sleep_for(milliseconds(40));
      ended = Clock::now();
      ++count;
    });
    Await(count, 3);
  }
  EXPECT_GE(shortest, milliseconds(20));
}

TEST(Timer, BodyDoesNotRunAfterDestruction) {
  for (int i = 0; i < 50; ++i) {
    std::atomic<int> begun = 0;
    std::atomic<int> ended = 0;
    {
      const Timer timer(milliseconds(0), [&] {
        ++begun;
        std::this_thread::yield();
        ++ended;
      });
      Await(begun, 1);
    }
    const int count = begun;
    EXPECT_EQ(count, ended);
    std::this_thread::yield();
    EXPECT_EQ(count, begun);
  }
}

}  // namespace
}  // namespace attnbias::timer_test
