// SPDX-License-Identifier: Apache-2.0
#include "server/plan_memo.h"

#include "gtest/gtest.h"

namespace attnbias {
namespace {

const TableSetPtr& NoTables() {
  static const TableSetPtr& tables =
      *new TableSetPtr(std::make_shared<const TableSet>());
  return tables;
}

PlannedRequestPtr Planned(const std::string& header) {
  return std::make_shared<const PlannedRequest>(
      PlannedRequest{nullptr, header, NoTables()});
}

TEST(PlanMemo, FindsWhatWasInsertedUnderTheSameBytes) {
  PlanMemo memo;
  EXPECT_EQ(memo.Find("a", NoTables()), nullptr);
  memo.Insert("a", Planned("A"));
  memo.Insert("b", Planned("B"));
  EXPECT_EQ(memo.Find("a", NoTables())->header, "A");
  EXPECT_EQ(memo.Find("b", NoTables())->header, "B");
  EXPECT_EQ(memo.Find("ab", NoTables()), nullptr);
}

TEST(PlanMemo, ForgetsAPlanWithTheTablesItMayHaveNamed) {
  PlanMemo memo;
  memo.Insert("a", Planned("A"));
  TableSetPtr others = std::make_shared<const TableSet>();
  EXPECT_EQ(memo.Find("a", others), nullptr);
  memo.Insert("a", std::make_shared<const PlannedRequest>(
                       PlannedRequest{nullptr, "B", others}));
  EXPECT_EQ(memo.Find("a", others)->header, "B");
  EXPECT_EQ(memo.Find("a", NoTables()), nullptr);
  // It keeps no tables alive.
  const std::weak_ptr<const TableSet> watch = others;
  others.reset();
  EXPECT_TRUE(watch.expired());
}

TEST(PlanMemo, DoesNotRememberLargeRequests) {
  PlanMemo memo;
  const std::string largest(PlanMemo::kMaxRequestBytes, 'x');
  memo.Insert(largest, Planned("A"));
  memo.Insert(largest + "x", Planned("B"));
  EXPECT_NE(memo.Find(largest, NoTables()), nullptr);
  EXPECT_EQ(memo.Find(largest + "x", NoTables()), nullptr);
}

TEST(PlanMemo, StaysBounded) {
  PlanMemo memo;
  for (size_t i = 0; i <= PlanMemo::kMaxRequests; ++i) {
    memo.Insert(std::to_string(i), Planned(""));
  }
  EXPECT_EQ(memo.Find("0", NoTables()), nullptr);
  EXPECT_NE(memo.Find(std::to_string(PlanMemo::kMaxRequests), NoTables()),
            nullptr);
}

}  // namespace
}  // namespace attnbias
