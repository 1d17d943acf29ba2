// SPDX-License-Identifier: Apache-2.0
#include "server/service/plan_memo.h"

#include "absl/strings/str_cat.h"
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

TEST(PlanMemo, ForgetsThePlansOfTablesThatAreGone) {
  PlanMemo memo;
  TableSetPtr first = std::make_shared<const TableSet>();
  TableSetPtr second = std::make_shared<const TableSet>();
  PlannedRequestPtr planned = Planned("A");
  const std::weak_ptr<const PlannedRequest> watch = planned;
  memo.Insert("a", first, std::move(planned));
  EXPECT_EQ(memo.Find("a", second), nullptr);
  memo.Insert("a", second, Planned("B"));
  EXPECT_EQ(memo.Find("a", first)->header, "A");
  EXPECT_EQ(memo.Find("a", second)->header, "B");
  // It does not keep a set of tables alive.
  const std::weak_ptr<const TableSet> gone = first;
  first.reset();
  EXPECT_TRUE(gone.expired());
  memo.Insert("a", NoTables(), Planned("C"));
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(memo.Find("a", second)->header, "B");
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

TEST(PlanMemo, StaysBoundedInBytes) {
  PlanMemo memo;
  const std::string largest(PlanMemo::kMaxRememberedBytes, 'x');
  constexpr size_t kFit =
      PlanMemo::kMaxBytes / (2 * PlanMemo::kMaxRememberedBytes);
  const auto insert = [&](size_t index, const TableSetPtr& tables) {
    std::string request = absl::StrCat(index);
    request.resize(largest.size());
    memo.Insert(request, tables, Planned(largest));
    return request;
  };
  TableSetPtr gone = std::make_shared<const TableSet>();
  for (size_t i = 1; i < kFit; ++i) insert(i, gone);
  const std::string request = insert(0, NoTables());
  // Those of tables that are gone no longer count.
  gone.reset();
  insert(0, std::make_shared<const TableSet>());
  EXPECT_NE(memo.Find(request, NoTables()), nullptr);
  for (size_t i = 1; i < kFit; ++i) insert(i, NoTables());
  EXPECT_EQ(memo.Find(request, NoTables()), nullptr);
}

}  // namespace
}  // namespace attnbias::plan_memo_test
