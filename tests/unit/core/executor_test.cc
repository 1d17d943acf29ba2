// SPDX-License-Identifier: Apache-2.0
#include "core/base/executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/await.h"
#include "tests/unit/support/manual_executor.h"
#include "tests/unit/support/status_matchers.h"
#include "tests/unit/support/threads.h"

namespace attnbias::executor_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Status OnThreads(int count, int unit,
                       absl::AnyInvocable<absl::Status(int64_t, int64_t) const> body) {
  Threads threads(4);
  return Await<absl::Status>([&](auto done) {
    ForRanges(threads, std::make_shared<Caller>(), count, unit, std::move(body), std::move(done));
  });
}

TEST(ForRanges, CallsEachItemOnceInWholeUnits) {
  for (int count : {0, 1, 2, 7, 100, 100000}) {
    std::vector<std::atomic<int>> calls(count);
    EXPECT_THAT(OnThreads(count, 7,
                          [&](int64_t begin, int64_t end) {
                            EXPECT_EQ(begin % 7, 0);
                            EXPECT_TRUE(end % 7 == 0 || end == count);
                            for (int64_t i = begin; i < end; ++i) ++calls[i];
                            return absl::OkStatus();
                          }),
                IsOk());
    EXPECT_TRUE(std::all_of(calls.begin(), calls.end(), [](const auto& n) { return n == 1; }));
  }
}

TEST(ForRanges, FewerItemsThanAUnitAreOneRange) {
  for (int count : {1, 7, 63, 65}) {
    std::atomic<int> items = 0;
    EXPECT_THAT(OnThreads(count, 64,
                          [&](int64_t begin, int64_t end) {
                            items += static_cast<int>(end - begin);
                            return absl::OkStatus();
                          }),
                IsOk());
    EXPECT_EQ(items, count);
  }
}

TEST(ForRanges, IdleThreadsJoinInLongWork) {
  std::atomic<int> at_once = 0;
  std::atomic<int> most = 0;
  EXPECT_THAT(OnThreads(200, 1,
                        [&](int64_t, int64_t) {
                          const int now = ++at_once;
                          int known = most;
                          while (known < now && !most.compare_exchange_weak(known, now)) {
                          }
                          std::this_thread::sleep_for(std::chrono::milliseconds(1));
                          --at_once;
                          return absl::OkStatus();
                        }),
              IsOk());
  EXPECT_GT(most, 1);
}

TEST(ForRanges, StopsAtFirstError) {
  std::atomic<int> after = 0;
  std::atomic<bool> failed = false;
  EXPECT_THAT(OnThreads(1 << 20, 1,
                        [&](int64_t begin, int64_t) {
                          if (failed) ++after;
                          if (begin < 1000) return absl::OkStatus();
                          failed = true;
                          return absl::DataLossError("no further");
                        }),
              StatusIs(absl::StatusCode::kDataLoss, "no further"));
  // Other threads may have started these before the error.
  EXPECT_LE(after, 3);
}

TEST(ForRanges, LongWorkYieldsToOtherTasks) {
  ManualExecutor executor;
  std::string order;
  bool ended = false;
  const auto slow = [&](int64_t, int64_t) {
    order += 's';
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return absl::OkStatus();
  };
  ForRanges(executor, std::make_shared<Caller>(), 3, 1, slow,
            [&](const absl::Status&) { ended = true; });
  EXPECT_FALSE(ended);
  executor.Schedule(std::make_shared<Caller>(), [&] { order += 'o'; });
  executor.RunAll();
  EXPECT_TRUE(ended);
  EXPECT_EQ(order, "ssos");
}

TEST(ForRanges, StopsWhenCallerCancels) {
  ManualExecutor executor;
  const auto caller = std::make_shared<Caller>();
  int calls = 0;
  absl::Status result;
  ForRanges(
      executor, caller, 1000, 1,
      [&](int64_t, int64_t) {
        ++calls;
        caller->Cancel();
        return absl::OkStatus();
      },
      [&](const absl::Status& status) { result = status; });
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(result,
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("every caller has canceled")));
}

TEST(ForRanges, NonPreemptibleItemsAreOneBlockingRange) {
  ManualExecutor executor;
  int calls = 0;
  absl::Status result;
  ForRanges(
      executor, std::make_shared<Caller>(), 7, kNonPreemptible,
      [&](int64_t begin, int64_t end) {
        EXPECT_EQ(begin, 0);
        EXPECT_EQ(end, 7);
        ++calls;
        return absl::DataLossError("no further");
      },
      [&](const absl::Status& status) { result = status; });
  EXPECT_FALSE(executor.RunOne());
  EXPECT_TRUE(executor.RunOneBlocking());
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(result, IsOk()) << "ended on a thread for non-preemptible work";
  EXPECT_TRUE(executor.RunOne());
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kDataLoss, "no further"));
}

TEST(RunBlocking, RunsInlineUnlessLong) {
  ManualExecutor executor;
  const auto caller = std::make_shared<Caller>();
  std::vector<int> used;
  const auto use = [&](const absl::StatusOr<int>& made) { used.push_back(made.value_or(-1)); };
  RunBlocking(
      executor, caller, false, [] { return 1; }, use);
  EXPECT_THAT(used, ElementsAre(1));
  RunBlocking(
      executor, caller, true, [] { return 2; }, use);
  EXPECT_FALSE(executor.RunOne());
  EXPECT_TRUE(executor.RunOneBlocking());
  EXPECT_THAT(used, ElementsAre(1)) << "used on a thread for preemptible work";
  EXPECT_TRUE(executor.RunOne());
  EXPECT_THAT(used, ElementsAre(1, 2));
}

TEST(RunBlocking, SkipsWorkOfCancelledCaller) {
  ManualExecutor executor;
  const auto caller = std::make_shared<Caller>();
  absl::Status used;
  RunBlocking(
      executor, caller, true,
      [] {
        ADD_FAILURE() << "made";
        return 0;
      },
      [&](const absl::StatusOr<int>& made) { used = made.status(); });
  caller->Cancel();
  EXPECT_TRUE(executor.RunOneBlocking());
  EXPECT_TRUE(executor.RunOne());
  EXPECT_THAT(used, StatusIs(absl::StatusCode::kCancelled));
}

TEST(RunBlocking, DiscardsResultIfCancelledWhileRunning) {
  ManualExecutor executor;
  const auto caller = std::make_shared<Caller>();
  absl::Status used;
  EXPECT_TRUE(ComputeScope::Continues());
  RunBlocking(
      executor, caller, true,
      [&] {
        EXPECT_TRUE(ComputeScope::Continues());
        caller->Cancel();
        EXPECT_FALSE(ComputeScope::Continues());
        return 0;
      },
      [&](const absl::StatusOr<int>& made) { used = made.status(); });
  EXPECT_TRUE(executor.RunOneBlocking());
  EXPECT_TRUE(ComputeScope::Continues());
  EXPECT_TRUE(executor.RunOne());
  EXPECT_THAT(used, StatusIs(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace attnbias::executor_test
