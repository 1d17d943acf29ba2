// SPDX-License-Identifier: Apache-2.0
// Tests the queue's time and memory guarantees. worker_pool_test.cc covers the rest.
#include "server/schedule/fair_queue.h"

#include <chrono>
#include <string>

#include "gtest/gtest.h"

namespace attnbias::fair_queue_test {
namespace {

using std::chrono_literals::operator""ms;

TEST(FairQueue, SharesTimeNotItems) {
  FairQueue<std::string> queue;
  for (int i = 0; i < 100; ++i) {
    for (const char* owner : {"slow", "fast"}) queue.Push(owner, owner);
  }
  int slow = 0;
  for (int i = 0; i < 100; ++i) {
    const std::string owner = queue.Pop();
    queue.Charge(owner, owner == "slow" ? 4ms : 1ms);
    slow += owner == "slow" ? 1 : 0;
  }
  EXPECT_NEAR(slow, 20, 1);
}

TEST(FairQueue, DoesNotCreditIdleTime) {
  FairQueue<std::string> queue;
  for (int i = 0; i < 20; ++i) queue.Push("present", "present");
  for (int i = 0; i < 10; ++i) queue.Charge(queue.Pop(), 1ms);
  for (int i = 0; i < 10; ++i) queue.Push("back", "back");
  int back = 0;
  for (int i = 0; i < 8; ++i) {
    const std::string owner = queue.Pop();
    queue.Charge(owner, 1ms);
    back += owner == "back" ? 1 : 0;
  }
  EXPECT_NEAR(back, 4, 1);
}

TEST(FairQueue, RemembersDebtOfDepartedOwner) {
  FairQueue<std::string> queue;
  for (const char* owner : {"debtor", "other", "other"}) {
    queue.Push(owner, owner);
  }
  queue.Charge(queue.Pop(), 5ms);
  queue.Push("debtor", "debtor");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(queue.Pop(), "other");
    queue.Charge("other", 1ms);
  }
}

TEST(FairQueue, NewOwnersDoNotStarveOldOnes) {
  FairQueue<std::string> queue;
  queue.Push("old", "old");
  queue.Charge(queue.Pop(), 10ms);
  for (int i = 0; i < 2; ++i) queue.Push(std::to_string(i), std::to_string(i));
  queue.Push("old", "old");
  int turns = 0;
  for (std::string owner; owner != "old" && turns < 1000; ++turns) {
    owner = queue.Pop();
    queue.Charge(owner, 10ms);
    queue.Push("new " + std::to_string(turns), "new " + std::to_string(turns));
  }
  EXPECT_LT(turns, 10);
}

TEST(FairQueue, ShortItemsComeFirstWithoutStarvingLongOnes) {
  FairQueue<char> queue;
  queue.Push("a", 'l', FairQueue<char>::kLong);
  queue.Push("a", 'l', FairQueue<char>::kLong);
  for (int i = 0; i < 10; ++i) queue.Push("a", 's');
  std::string order;
  while (!queue.empty()) order += queue.Pop();
  EXPECT_EQ(order, "sssssssslssl");
}

TEST(FairQueue, ForgetsOwnersWithoutDebt) {
  FairQueue<std::string> queue;
  for (int i = 0; i < 100000; ++i) {
    const std::string owner = std::to_string(i);
    queue.Push(owner, owner);
    queue.Charge(queue.Pop(), 1ms);
  }
  EXPECT_LT(queue.owners(), 1000);
}

}  // namespace
}  // namespace attnbias::fair_queue_test
