// SPDX-License-Identifier: Apache-2.0
#include "server/plan_memo.h"

#include "gtest/gtest.h"

namespace attnbias {
namespace {

PlannedRequestPtr Planned(const std::string& header) {
  return std::make_shared<const PlannedRequest>(
      PlannedRequest{nullptr, header});
}

TEST(PlanMemo, FindsWhatWasInsertedUnderTheSameBytes) {
  PlanMemo memo;
  EXPECT_EQ(memo.Find("a"), nullptr);
  memo.Insert("a", Planned("A"));
  memo.Insert("b", Planned("B"));
  EXPECT_EQ(memo.Find("a")->header, "A");
  EXPECT_EQ(memo.Find("b")->header, "B");
  EXPECT_EQ(memo.Find("ab"), nullptr);
}

TEST(PlanMemo, DoesNotRememberLargeRequests) {
  PlanMemo memo;
  const std::string largest(PlanMemo::kMaxRequestBytes, 'x');
  memo.Insert(largest, Planned("A"));
  memo.Insert(largest + "x", Planned("B"));
  EXPECT_NE(memo.Find(largest), nullptr);
  EXPECT_EQ(memo.Find(largest + "x"), nullptr);
}

TEST(PlanMemo, StaysBounded) {
  PlanMemo memo;
  for (size_t i = 0; i <= PlanMemo::kMaxRequests; ++i) {
    memo.Insert(std::to_string(i), Planned(""));
  }
  EXPECT_EQ(memo.Find("0"), nullptr);
  EXPECT_NE(memo.Find(std::to_string(PlanMemo::kMaxRequests)), nullptr);
}

}  // namespace
}  // namespace attnbias
