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

TEST(Timer, CallsEachTaskRepeatedly) {
  Timer timer;
  std::atomic<int> first = 0;
  std::atomic<int> second = 0;
  const Timer::Task one(&timer, milliseconds(1), [&] { ++first; });
  const Timer::Task two(&timer, milliseconds(2), [&] { ++second; });
  Await(first, 5);
  Await(second, 5);
}

TEST(Timer, CallsTaskEarlyOnlyWhenRequested) {
  Timer timer;
  std::atomic<int> count = 0;
  Timer::Task task(&timer, hours(1), [&] { ++count; });
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(count, 0);
  task.RunSoon();
  Await(count, 1);
  task.RunSoon();
  Await(count, 2);
}

TEST(Timer, TaskRequestedWhileItRunsIsCalledOnceMore) {
  Timer timer;
  std::latch end(1);
  std::atomic<int> count = 0;
  Timer::Task task(&timer, hours(1), [&] {
    ++count;
    end.wait();
  });
  task.RunSoon();
  Await(count, 1);
  task.RunSoon();
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(count, 1);
  end.count_down();
  Await(count, 2);
}

TEST(Timer, WaitingTaskDelaysNoOtherTaskIfOnOwnThread) {
  Timer timer;
  std::latch end(1);
  std::atomic<int> waiting = 0;
  std::atomic<int> count = 0;
  const Timer::Task disk(
      &timer, milliseconds(1),
      [&] {
        ++waiting;
        end.wait();
      },
      Timer::On::kOwnThread);
  Await(waiting, 1);
  const Timer::Task other(&timer, milliseconds(1), [&] { ++count; });
  const Timer::Task third(
      &timer, milliseconds(1), [&] { ++count; }, Timer::On::kOwnThread);
  Await(count, 10);
  EXPECT_EQ(waiting, 1);
  end.count_down();
  Await(waiting, 2);
}

TEST(Timer, OverrunningBodyStillPauses) {
  using Clock = std::chrono::steady_clock;
  Timer timer;
  std::atomic<int> count = 0;
  Clock::time_point ended = Clock::time_point::min();
  Clock::duration shortest = hours(1);
  {
    const Timer::Task task(&timer, milliseconds(20), [&] {
      if (count > 0) shortest = std::min(shortest, Clock::now() - ended);
      std::this_thread::sleep_for(milliseconds(40));
      ended = Clock::now();
      ++count;
    });
    Await(count, 3);
  }
  EXPECT_GE(shortest, milliseconds(20));
}

TEST(Timer, NoBodyRunsAfterTaskIsDestroyed) {
  Timer timer;
  for (int i = 0; i < 100; ++i) {
    std::atomic<int> begun = 0;
    std::atomic<int> ended = 0;
    {
      const Timer::Task task(
          &timer, milliseconds(0),
          [&] {
            ++begun;
            std::this_thread::yield();
            ++ended;
          },
          i % 2 == 0 ? Timer::On::kTimer : Timer::On::kOwnThread);
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
