// SPDX-License-Identifier: Apache-2.0
#include "server/service/plan_memo.h"

#include <algorithm>
#include <utility>

namespace attnbias {

PlannedRequestPtr PlanMemo::Find(const std::string& request, const TableSetPtr& tables) {
  MutexLock lock(mutex_);
  const auto known = by_tables_.find(tables);
  if (known == by_tables_.end()) return nullptr;
  const auto found = known->second.requests.find(request);
  return found == known->second.requests.end() ? nullptr : found->second;
}

void PlanMemo::Insert(std::string request, const TableSetPtr& tables, PlannedRequestPtr planned) {
  if (std::max(request.size(), planned->header.size()) > kMaxRememberedBytes) {
    return;
  }
  const size_t bytes = request.size() + planned->header.size();
  MutexLock lock(mutex_);
  std::erase_if(by_tables_, [](const auto& each) { return each.first.expired(); });
  size_t all_requests = 1;
  size_t all_bytes = bytes;
  for (const auto& [set, known] : by_tables_) {
    all_requests += known.requests.size();
    all_bytes += known.bytes;
  }
  if (all_requests > kMaxRequests || all_bytes > kMaxBytes) by_tables_.clear();
  Known& known = by_tables_[tables];
  // A concurrent call may have made the same plan.
  if (known.requests.emplace(std::move(request), std::move(planned)).second) known.bytes += bytes;
}

}  // namespace attnbias
