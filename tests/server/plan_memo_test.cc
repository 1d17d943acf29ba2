// SPDX-License-Identifier: Apache-2.0
#include "server/plan_memo.h"

#include "gtest/gtest.h"

namespace attnbias::plan_memo_test {
namespace {

const TableSetPtr& NoTables() {
  static const TableSetPtr& tables =
      *new TableSetPtr(std::make_shared<const TableSet>());
  return tables;
}

PlannedRequestPtr Planned(const std::string& header) {
  return std::make_shared<const PlannedRequest>(
      PlannedRequest{nullptr, header});
}

TEST(PlanMemo, FindsWhatWasInsertedUnderTheSameBytes) {
  PlanMemo memo;
  EXPECT_EQ(memo.Find("a", NoTables()), nullptr);
  memo.Insert("a", NoTables(), Planned("A"));
  memo.Insert("b", NoTables(), Planned("B"));
  EXPECT_EQ(memo.Find("a", NoTables())->header, "A");
  EXPECT_EQ(memo.Find("b", NoTables())->header, "B");
  EXPECT_EQ(memo.Find("ab", NoTables()), nullptr);
}

TEST(PlanMemo, ForgetsAllPlansWithTheTablesTheyMayHaveNamed) {
  PlanMemo memo;
  PlannedRequestPtr planned = Planned("A");
  const std::weak_ptr<const PlannedRequest> watch = planned;
  memo.Insert("a", NoTables(), std::move(planned));
  TableSetPtr others = std::make_shared<const TableSet>();
  EXPECT_EQ(memo.Find("a", others), nullptr);
  EXPECT_TRUE(watch.expired());
  memo.Insert("a", others, Planned("B"));
  EXPECT_EQ(memo.Find("a", others)->header, "B");
  EXPECT_EQ(memo.Find("a", NoTables()), nullptr);
  // It does not keep a set of tables alive.
  const std::weak_ptr<const TableSet> set = others;
  others.reset();
  EXPECT_TRUE(set.expired());
}

TEST(PlanMemo, DoesNotRememberLargeRequests) {
  PlanMemo memo;
  const std::string largest(PlanMemo::kMaxRememberedBytes, 'x');
  memo.Insert(largest, NoTables(), Planned("A"));
  memo.Insert(largest + "x", NoTables(), Planned("B"));
  EXPECT_NE(memo.Find(largest, NoTables()), nullptr);
  EXPECT_EQ(memo.Find(largest + "x", NoTables()), nullptr);
  memo.Insert("small", NoTables(), Planned(largest + "x"));
  EXPECT_EQ(memo.Find("small", NoTables()), nullptr);
}

TEST(PlanMemo, StaysBounded) {
  PlanMemo memo;
  for (size_t i = 0; i <= PlanMemo::kMaxRequests; ++i) {
    memo.Insert(std::to_string(i), NoTables(), Planned(""));
  }
  EXPECT_EQ(memo.Find("0", NoTables()), nullptr);
  EXPECT_NE(memo.Find(std::to_string(PlanMemo::kMaxRequests), NoTables()),
            nullptr);
}

}  // namespace
}  // namespace attnbias::plan_memo_test
