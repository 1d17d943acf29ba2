// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/worker_pool.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace attnbias::worker_pool_test {
namespace {

CallerPtr Of(const std::string& client) { return std::make_shared<Caller>(client); }

// Occupies the only thread of a pool until released.
class Busy {
 public:
  explicit Busy(WorkerPool* pool) {
    pool->Schedule(Of("busy"), [this] {
      begun_.set_value();
      go_.get_future().wait();
    });
    begun_.get_future().wait();
  }
  void LetGo() { go_.set_value(); }

 private:
  std::promise<void> begun_;
  std::promise<void> go_;
};

class OneThread : public ::testing::Test {
 protected:
  // Adds a task that records that it ran.
  void Add(const CallerPtr& caller, char name) {
    pool_.Schedule(caller, [this, name] { order_ += name; });
  }
  // Returns the order in which tasks ran.
  std::string Order() {
    busy_.LetGo();
    pool_.Shutdown();
    return order_;
  }

  std::string order_;
  WorkerPool pool_{1};
  Busy busy_{&pool_};
};

TEST_F(OneThread, RunsTasksOfOneClientInOrder) {
  for (char name : {'a', 'b', 'c'}) Add(Of("x"), name);
  EXPECT_EQ(Order(), "abc");
}

TEST_F(OneThread, ClientsShareTheThread) {
  for (char name : {'a', 'b', 'c'}) Add(Of("x"), name);
  Add(Of("y"), 'd');
  EXPECT_EQ(Order().find('d'), 1);
}

TEST_F(OneThread, CallersOfOneClientWithLessUsageComeFirst) {
  const CallerPtr heavy = Of("x");
  heavy->Use(std::chrono::seconds(1));
  Add(heavy, 'a');
  for (char name : {'b', 'c', 'd'}) Add(Of("x"), name);
  EXPECT_EQ(Order(), "bcda");
}

TEST_F(OneThread, HeavyCallerIsNotStarved) {
  const CallerPtr heavy = Of("x");
  heavy->Use(std::chrono::seconds(1));
  Add(heavy, 'a');
  for (int i = 0; i < 50; ++i) Add(Of("x"), '.');
  const size_t place = Order().find('a');
  EXPECT_GT(place, 0);
  EXPECT_LT(place, 50);
}

TEST_F(OneThread, OldestWaitIsThatOfOldestTask) {
  EXPECT_EQ(pool_.oldest_wait(), WorkerPool::Clock::duration(0));
  Add(Of("x"), 'a');
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  Add(Of("x"), 'b');
  EXPECT_GE(pool_.oldest_wait(), std::chrono::milliseconds(2));
  EXPECT_EQ(Order(), "ab");
}

TEST(WorkerPool, CancelledBlockingTasksRunImmediately) {
  WorkerPool pool(1);
  std::promise<void> begun;
  std::promise<void> go;
  pool.ScheduleBlocking(Of("a"), [&] {
    begun.set_value();
    go.get_future().wait();
  });
  begun.get_future().wait();
  std::promise<void> ended;
  const CallerPtr gone = Of("b");
  pool.ScheduleBlocking(Of("b"), [] {});
  pool.ScheduleBlocking(gone, [&] { ended.set_value(); });
  gone->Cancel();
  pool.ExpediteCancelled();
  EXPECT_EQ(ended.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_EQ(pool.queued(), 1);
  go.set_value();
  pool.Shutdown();
}

TEST(WorkerPool, BlockingTasksDoNotDelayOthers) {
  WorkerPool pool(1);
  std::promise<void> ran;
  // Waits for a task that is scheduled after it.
  pool.ScheduleBlocking(Of("a"), [&] { ran.get_future().wait(); });
  pool.Schedule(Of("a"), [&] { ran.set_value(); });
  pool.Shutdown();
}

// A long task that yields lets later tasks run first.
TEST(WorkerPool, BlockingTasksShareTimeWhenTheyYield) {
  WorkerPool pool(1);
  std::atomic<bool> ran = false;
  bool ran_before_the_first_ended = false;
  pool.ScheduleBlocking(Of("a"), [&] {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!ran && std::chrono::steady_clock::now() < deadline) pool.Yield();
    ran_before_the_first_ended = ran;
  });
  pool.ScheduleBlocking(Of("b"), [&] { ran = true; });
  pool.Shutdown();
  EXPECT_TRUE(ran_before_the_first_ended);
}

TEST(WorkerPool, RunsMoreBlockingTasksThanMayRunAtOnce) {
  WorkerPool pool(5);
  std::atomic<int> ended = 0;
  for (int i = 0; i < 200; ++i) {
    pool.ScheduleBlocking(Of(std::to_string(i % 50)), [&] {
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
      while (std::chrono::steady_clock::now() < end) pool.Yield();
      ++ended;
    });
  }
  pool.Shutdown();
  EXPECT_EQ(ended, 200);
}

TEST(WorkerPool, ShutdownRunsTasksThatBlockingTasksSchedule) {
  WorkerPool pool(1);
  std::atomic<bool> ran = false;
  pool.ScheduleBlocking(Of("a"), [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pool.Schedule(Of("a"), [&] { ran = true; });
  });
  pool.Shutdown();
  EXPECT_TRUE(ran);
}

TEST(WorkerPool, ShutdownRunsBlockingTasksThatTasksSchedule) {
  WorkerPool pool(1);
  std::atomic<bool> ran = false;
  pool.Schedule(Of("a"), [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pool.ScheduleBlocking(Of("a"), [&] { ran = true; });
  });
  pool.Shutdown();
  EXPECT_TRUE(ran);
}

TEST(WorkerPool, RunsOnStatedNumberOfThreads) {
  WorkerPool pool(3);
  EXPECT_EQ(pool.num_threads(), 3);
  // Each task waits for all three.
  std::atomic<int> arrived = 0;
  for (int i = 0; i < 3; ++i) {
    pool.Schedule(Of("a"), [&arrived] {
      ++arrived;
      while (arrived < 3) std::this_thread::yield();
    });
  }
  pool.Shutdown();
  EXPECT_EQ(arrived, 3);
}

TEST(WorkerPool, ShutdownRunsQueuedTasks) {
  std::atomic<int> ran = 0;
  WorkerPool pool(2);
  for (int i = 0; i < 50; ++i) pool.Schedule(Of("a"), [&ran] { ++ran; });
  pool.Shutdown();
  EXPECT_EQ(ran, 50);
}

}  // namespace
}  // namespace attnbias::worker_pool_test
