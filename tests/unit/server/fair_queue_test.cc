// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/fair_queue.h"

#include <chrono>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnbias::fair_queue_test {
namespace {

using std::chrono_literals::operator""ms;

// Items are their owners' names; each takes as long as Charge says.
std::string PopAll(FairQueue<std::string>& queue,
                   std::chrono::milliseconds time_of_each) {
  std::string order;
  while (!queue.empty()) {
    const std::string owner = queue.Pop();
    queue.Charge(owner, time_of_each);
    order += owner;
  }
  return order;
}

TEST(FairQueue, AnOwnersItemsComeInOrder) {
  FairQueue<int> queue;
  for (int i = 0; i < 3; ++i) queue.Push("a", i);
  EXPECT_EQ(queue.Pop(), 0);
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), 2);
  EXPECT_TRUE(queue.empty());
}

TEST(FairQueue, OwnersTakeTurnsHoweverMuchEachHas) {
  FairQueue<std::string> queue;
  for (int i = 0; i < 5; ++i) queue.Push("a", "a");
  queue.Push("b", "b");
  queue.Push("b", "b");
  queue.Push("c", "c");
  EXPECT_EQ(PopAll(queue, 1ms), "abcabaaa");
}

TEST(FairQueue, PopFirstPassesOverOwnersWhoseNextItemDoesNotFit) {
  FairQueue<int> queue;
  queue.Push("a", 1);
  queue.Push("a", 4);
  queue.Push("b", 2);
  queue.Push("c", 6);
  const auto is_even = [](int item) { return item % 2 == 0; };
  EXPECT_EQ(queue.PopFirst(is_even), 2);
  EXPECT_EQ(queue.PopFirst(is_even), 6);
  EXPECT_EQ(queue.PopFirst(is_even), std::nullopt);
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.PopFirst(is_even), 4);
  EXPECT_TRUE(queue.empty());
}

TEST(FairQueue, TurnsAreByTimeNotByItems) {
  FairQueue<std::string> queue;
  for (int i = 0; i < 3; ++i) queue.Push("slow", "s");
  for (int i = 0; i < 6; ++i) queue.Push("fast", "f");
  std::string order;
  while (!queue.empty()) {
    const std::string item = queue.Pop();
    queue.Charge(item == "s" ? "slow" : "fast", item == "s" ? 4ms : 1ms);
    order += item;
  }
  EXPECT_EQ(order, "sffffsffs");
}

TEST(FairQueue, WhoeverWasAwayIsNotAheadForLong) {
  FairQueue<std::string> queue;
  for (int i = 0; i < 20; ++i) queue.Push("a", "a");
  for (int i = 0; i < 10; ++i) {
    queue.Charge(queue.Pop(), 1ms);
  }
  for (int i = 0; i < 4; ++i) queue.Push("b", "b");
  EXPECT_EQ(PopAll(queue, 1ms).substr(0, 8), "babababa");
}

TEST(FairQueue, NobodyLosesHisDebtByLeaving) {
  FairQueue<std::string> queue;
  for (const char* owner : {"a", "b", "b", "b"}) queue.Push(owner, owner);
  queue.Charge(queue.Pop(), 5ms);
  queue.Push("a", "a");
  EXPECT_EQ(PopAll(queue, 1ms), "bbba");
}

TEST(FairQueue, NewcomersWithoutEndAreNotAlwaysFirst) {
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

TEST(FairQueue, ShortItemsOfAnOwnerComeFirstButNotForEver) {
  FairQueue<char> queue;
  queue.Push("a", 'l', FairQueue<char>::kLong);
  queue.Push("a", 'l', FairQueue<char>::kLong);
  for (int i = 0; i < 10; ++i) queue.Push("a", 's');
  std::string order;
  while (!queue.empty()) order += queue.Pop();
  EXPECT_EQ(order, "sssssssslssl");
}

TEST(FairQueue, ForgetsOwnersWhoAreLevel) {
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
