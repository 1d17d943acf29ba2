// SPDX-License-Identifier: Apache-2.0
#include "server/service/plan_memo.h"

#include <algorithm>
#include <utility>

namespace attnbias {

PlannedRequestPtr PlanMemo::Find(const std::string& request, const TableSetPtr& tables) {
  MutexLock lock(mutex_);
  const auto requests = by_tables_.find(tables);
  if (requests == by_tables_.end()) return nullptr;
  const auto found = requests->second.find(request);
  return found == requests->second.end() ? nullptr : found->second;
}

void PlanMemo::Insert(std::string request, const TableSetPtr& tables, PlannedRequestPtr planned) {
  if (std::max(request.size(), planned->header.size()) > kMaxRememberedBytes) {
    return;
  }
  const size_t bytes = request.size() + planned->header.size();
  MutexLock lock(mutex_);
  if (!by_tables_.contains(tables)) ForgetGoneTablesLocked();
  if (size_ >= kMaxRequests || bytes_ + bytes > kMaxBytes) {
    by_tables_.clear();
    size_ = bytes_ = 0;
  }
  // A concurrent caller has made the same plan.
  if (by_tables_[tables].emplace(std::move(request), std::move(planned)).second) {
    ++size_;
    bytes_ += bytes;
  }
}

void PlanMemo::ForgetGoneTablesLocked() {
  for (auto each = by_tables_.begin(); each != by_tables_.end();) {
    if (each->first.expired()) {
      size_ -= each->second.size();
      for (const auto& [request, planned] : each->second) {
        bytes_ -= request.size() + planned->header.size();
      }
      each = by_tables_.erase(each);
    } else {
      ++each;
    }
  }
}

}  // namespace attnbias
