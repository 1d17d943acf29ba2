// SPDX-License-Identifier: Apache-2.0
#include "server/worker_pool.h"

#include <atomic>
#include <future>
#include <memory>

#include "gtest/gtest.h"

namespace attnbias {
namespace {

TEST(WorkerPool, RunsTasksInOrder) {
  std::string order;
  WorkerPool pool(1, 8);
  for (char name : {'a', 'b', 'c'}) {
    ASSERT_TRUE(pool.Schedule([&order, name] { order += name; }));
  }
  pool.Shutdown();
  EXPECT_EQ(order, "abc");
}

TEST(WorkerPool, RefusesWhatDoesNotFitInTheQueue) {
  std::promise<void> started;
  std::promise<void> release;
  // Last, so that its thread has ended before what the task uses is gone.
  WorkerPool pool(1, 2);
  ASSERT_TRUE(pool.Schedule([&] {
    started.set_value();
    release.get_future().wait();
  }));
  started.get_future().wait();
  EXPECT_TRUE(pool.Schedule([] {}));
  EXPECT_TRUE(pool.Schedule([] {}));
  EXPECT_FALSE(pool.Schedule([] {}));
  EXPECT_EQ(pool.queued(), 2);
  release.set_value();
}

TEST(WorkerPool, RunsOnAsManyThreadsAsItSays) {
  WorkerPool pool(3, 8);
  EXPECT_EQ(pool.num_threads(), 3);
  // Each waits for all three.
  std::atomic<int> arrived = 0;
  for (int i = 0; i < 3; ++i) {
    pool.Schedule([&arrived] {
      ++arrived;
      while (arrived < 3) std::this_thread::yield();
    });
  }
  pool.Shutdown();
  EXPECT_EQ(arrived, 3);
}

TEST(WorkerPool, ShutdownRunsWhatWaitsAndTakesNoMore) {
  std::atomic<int> ran = 0;
  WorkerPool pool(2, 100);
  for (int i = 0; i < 50; ++i) pool.Schedule([&ran] { ++ran; });
  pool.Shutdown();
  EXPECT_EQ(ran, 50);
  EXPECT_FALSE(pool.Schedule([] {}));
}

}  // namespace
}  // namespace attnbias
