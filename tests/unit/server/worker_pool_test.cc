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

CallerPtr Of(const std::string& client) {
  return std::make_shared<Caller>(client);
}

// Keeps the only thread of a pool until it is let go.
class Busy {
 public:
  explicit Busy(WorkerPool* pool) {
    // His time is none of those who have used little.
    const CallerPtr busy = Of("busy");
    busy->Use(std::chrono::seconds(1));
    pool->Schedule(busy, [this] {
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
  // Adds a task that says that it ran.
  void Add(const CallerPtr& caller, char name) {
    ASSERT_TRUE(pool_.Schedule(caller, [this, name] { order_ += name; }));
  }
  // The order in which tasks ran.
  std::string Order() {
    busy_.LetGo();
    pool_.Shutdown();
    return order_;
  }

  std::string order_;
  WorkerPool pool_{1, 100};
  Busy busy_{&pool_};
};

TEST_F(OneThread, RunsTheTasksOfAClientInOrder) {
  for (char name : {'a', 'b', 'c'}) Add(Of("x"), name);
  EXPECT_EQ(Order(), "abc");
}

TEST_F(OneThread, ClientsTakeTurns) {
  for (char name : {'a', 'b', 'c'}) Add(Of("x"), name);
  Add(Of("y"), 'd');
  EXPECT_EQ(Order().find('d'), 1);
}

TEST_F(OneThread, WhoHasUsedMuchWaitsForThoseWhoHaveNot) {
  const CallerPtr heavy = Of("x");
  heavy->Use(std::chrono::seconds(1));
  Add(heavy, 'a');
  for (char name : {'b', 'c', 'd'}) Add(Of("x"), name);
  EXPECT_EQ(Order(), "bcda");
}

TEST_F(OneThread, WhoHasUsedMuchIsNotKeptWaitingForEver) {
  const CallerPtr heavy = Of("x");
  heavy->Use(std::chrono::seconds(1));
  Add(heavy, 'a');
  for (int i = 0; i < 50; ++i) {
    pool_.Schedule(Of(std::to_string(i)), [this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      order_ += '.';
    });
  }
  const std::string order = Order();
  EXPECT_GT(order.find('a'), 0);
  EXPECT_LT(order.find('a'), 50);
}

TEST_F(OneThread, WhoHasCancelledComesFirst) {
  const CallerPtr gone = Of("y");
  gone->Use(std::chrono::seconds(1));
  for (char name : {'a', 'b', 'c'}) Add(Of("x"), name);
  Add(gone, 'd');
  gone->Cancel();
  pool_.ExpediteCancelled();
  EXPECT_EQ(pool_.queued(), 4);
  EXPECT_EQ(Order(), "dabc");
}

TEST_F(OneThread, TheOldestWaitIsThatOfTheOldestTask) {
  EXPECT_EQ(pool_.oldest_wait(), WorkerPool::Clock::duration(0));
  Add(Of("x"), 'a');
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  Add(Of("x"), 'b');
  EXPECT_GE(pool_.oldest_wait(), std::chrono::milliseconds(2));
  EXPECT_EQ(Order(), "ab");
}

TEST(WorkerPool, AClientHasNoMoreRoomThanItLeavesToOthers) {
  WorkerPool pool(1, 8);
  Busy busy(&pool);
  const auto fill = [&pool](const std::string& client) {
    int taken = 0;
    while (pool.Schedule(Of(client), [] {})) ++taken;
    return taken;
  };
  EXPECT_EQ(fill("a"), 4);
  EXPECT_EQ(fill("b"), 2);
  EXPECT_EQ(fill("c"), 1);
  EXPECT_EQ(fill("a"), 0);
  EXPECT_EQ(pool.queued(), 7);
  // What has begun is taken all the same.
  std::atomic<bool> ran = false;
  for (int i = 0; i < 5; ++i) {
    pool.Continue(Of("a"), [&ran] { ran = true; });
  }
  EXPECT_EQ(pool.queued(), 12);
  busy.LetGo();
  pool.Shutdown();
  EXPECT_TRUE(ran);
}

TEST(WorkerPool, WhatCannotBeCutHoldsUpNobody) {
  WorkerPool pool(1, 8);
  std::promise<void> ran;
  // Waits for a task that is scheduled after it.
  pool.ContinueUncut(Of("a"), [&] { ran.get_future().wait(); });
  pool.Schedule(Of("a"), [&] { ran.set_value(); });
  pool.Shutdown();
}

// What takes long and yields lets what came after it run first.
TEST(WorkerPool, TheUncutTakeTurnsWhereTheyYield) {
  WorkerPool pool(1, 8);
  std::atomic<bool> ran = false;
  bool ran_before_the_first_ended = false;
  pool.ContinueUncut(Of("a"), [&] {
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!ran && std::chrono::steady_clock::now() < deadline) pool.Yield();
    ran_before_the_first_ended = ran;
  });
  pool.ContinueUncut(Of("b"), [&] { ran = true; });
  pool.Shutdown();
  EXPECT_TRUE(ran_before_the_first_ended);
}

TEST(WorkerPool, MoreOfTheUncutThanMayBeginAllEnd) {
  WorkerPool pool(5, 1000);
  std::atomic<int> ended = 0;
  for (int i = 0; i < 200; ++i) {
    pool.ContinueUncut(Of(std::to_string(i % 50)), [&] {
      const auto end =
          std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
      while (std::chrono::steady_clock::now() < end) pool.Yield();
      ++ended;
    });
  }
  pool.Shutdown();
  EXPECT_EQ(ended, 200);
}

TEST(WorkerPool, ShutdownRunsWhatBecomesOfTheUncut) {
  WorkerPool pool(1, 8);
  std::atomic<bool> ran = false;
  pool.ContinueUncut(Of("a"), [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pool.Continue(Of("a"), [&] { ran = true; });
  });
  pool.Shutdown();
  EXPECT_TRUE(ran);
}

TEST(WorkerPool, ShutdownRunsTheUncutThatComesOfATurn) {
  WorkerPool pool(1, 8);
  std::atomic<bool> ran = false;
  pool.Schedule(Of("a"), [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pool.ContinueUncut(Of("a"), [&] { ran = true; });
  });
  pool.Shutdown();
  EXPECT_TRUE(ran);
}

TEST(WorkerPool, RunsOnAsManyThreadsAsItSays) {
  WorkerPool pool(3, 8);
  EXPECT_EQ(pool.num_threads(), 3);
  // Each waits for all three.
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

TEST(WorkerPool, ShutdownRunsWhatWaitsAndTakesNoMore) {
  std::atomic<int> ran = 0;
  WorkerPool pool(2, 200);
  for (int i = 0; i < 50; ++i) pool.Schedule(Of("a"), [&ran] { ++ran; });
  pool.Shutdown();
  EXPECT_EQ(ran, 50);
  EXPECT_FALSE(pool.Schedule(Of("a"), [] {}));
}

}  // namespace
}  // namespace attnbias::worker_pool_test
