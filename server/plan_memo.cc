// SPDX-License-Identifier: Apache-2.0
#include "server/plan_memo.h"

#include <utility>

namespace attnbias {

PlannedRequestPtr PlanMemo::Find(const std::string& request,
                                 const TableSetPtr& tables) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = requests_.find(request);
  if (found == requests_.end()) return nullptr;
  const std::weak_ptr<const TableSet>& known = found->second->tables;
  const bool same = !known.owner_before(tables) && !tables.owner_before(known);
  return same ? found->second : nullptr;
}

void PlanMemo::Insert(std::string request, PlannedRequestPtr planned) {
  if (request.size() > kMaxRequestBytes) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (requests_.size() >= kMaxRequests) requests_.clear();
  requests_.insert_or_assign(std::move(request), std::move(planned));
}

}  // namespace attnbias
