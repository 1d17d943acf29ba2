// SPDX-License-Identifier: Apache-2.0
// Tests the plan memo's limits. tensor_service_test.cc tests its answers.
#include "server/service/plan_memo.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace attnbias::plan_memo_test {
namespace {

PlannedRequestPtr Planned(const std::string& header) {
  return std::make_shared<const PlannedRequest>(PlannedRequest{nullptr, header});
}

TEST(PlanMemo, LimitsEntryCount) {
  PlanMemo memo;
  const TableSetPtr tables = std::make_shared<const TableSet>();
  for (size_t i = 0; i <= PlanMemo::kMaxRequests; ++i) {
    memo.Insert(std::to_string(i), tables, Planned(""));
  }
  EXPECT_EQ(memo.Find("0", tables), nullptr);
  EXPECT_NE(memo.Find(std::to_string(PlanMemo::kMaxRequests), tables), nullptr);
}

TEST(PlanMemo, LimitsBytes) {
  PlanMemo memo;
  const TableSetPtr tables = std::make_shared<const TableSet>();
  const std::string largest(PlanMemo::kMaxRememberedBytes, 'x');
  constexpr size_t kFit = PlanMemo::kMaxBytes / (2 * PlanMemo::kMaxRememberedBytes);
  const auto insert = [&](size_t index, const TableSetPtr& with) {
    std::string request = absl::StrCat(index);
    request.resize(largest.size());
    memo.Insert(request, with, Planned(largest));
    return request;
  };
  TableSetPtr gone = std::make_shared<const TableSet>();
  const std::weak_ptr<const TableSet> watch = gone;
  for (size_t i = 1; i < kFit; ++i) insert(i, gone);
  const std::string request = insert(0, tables);
  // Entries for unmounted tables no longer count.
  gone.reset();
  EXPECT_TRUE(watch.expired()) << "the memo keeps the tables";
  insert(0, std::make_shared<const TableSet>());
  EXPECT_NE(memo.Find(request, tables), nullptr);
  for (size_t i = 1; i <= kFit; ++i) insert(i, tables);
  EXPECT_EQ(memo.Find(request, tables), nullptr);
}

}  // namespace
}  // namespace attnbias::plan_memo_test
