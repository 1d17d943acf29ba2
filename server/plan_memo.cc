// SPDX-License-Identifier: Apache-2.0
#include "server/plan_memo.h"

#include <algorithm>
#include <utility>

namespace attnbias {

PlannedRequestPtr PlanMemo::Find(const std::string& request,
                                 const TableSetPtr& tables) {
  MutexLock lock(mutex_);
  ForgetOthersLocked(tables);
  const auto found = requests_.find(request);
  return found == requests_.end() ? nullptr : found->second;
}

void PlanMemo::Insert(std::string request, const TableSetPtr& tables,
                      PlannedRequestPtr planned) {
  if (std::max(request.size(), planned->header.size()) > kMaxRememberedBytes) {
    return;
  }
  MutexLock lock(mutex_);
  ForgetOthersLocked(tables);
  if (requests_.size() >= kMaxRequests) requests_.clear();
  requests_.insert_or_assign(std::move(request), std::move(planned));
}

void PlanMemo::ForgetOthersLocked(const TableSetPtr& tables) {
  if (!tables_.owner_before(tables) && !tables.owner_before(tables_)) return;
  requests_.clear();
  tables_ = tables;
}

}  // namespace attnbias
