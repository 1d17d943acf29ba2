// SPDX-License-Identifier: Apache-2.0
#include "core/cache/byte_budget.h"

namespace attnbias {

std::optional<ByteBudget::Reservation> ByteBudget::Reserve(int64_t bytes, const QuotaOwner& owner) {
  MutexLock lock(mutex_);
  if (bytes > limit_ - used_ || bytes > owner.max_bytes - HeldLocked(owner)) {
    return std::nullopt;
  }
  Holdings::value_type& entry = *holdings_.try_emplace(owner.name).first;
  entry.second += bytes;
  used_ += bytes;
  return Reservation(this, {&entry, bytes});
}

bool ByteBudget::WouldExceedOwnLimit(int64_t bytes, const QuotaOwner& owner) const {
  MutexLock lock(mutex_);
  return bytes > owner.max_bytes - HeldLocked(owner);
}

void ByteBudget::Refused(int64_t bytes, const QuotaOwner& owner) {
  MutexLock lock(mutex_);
  if (!IsWithinShareLocked(bytes, owner)) return;
  waits_until_.store(Clock::now() + kWait, std::memory_order_relaxed);
}

bool ByteBudget::WouldExceedFairShare(int64_t bytes, const QuotaOwner& owner) const {
  if (Clock::now() >= waits_until_.load(std::memory_order_relaxed)) return false;
  MutexLock lock(mutex_);
  return !IsWithinShareLocked(bytes, owner);
}

int64_t ByteBudget::HeldLocked(const QuotaOwner& owner) const {
  const auto found = holdings_.find(owner.name);
  return found == holdings_.end() ? 0 : found->second;
}

bool ByteBudget::IsWithinShareLocked(int64_t more, const QuotaOwner& owner) const {
  const auto owners = static_cast<int64_t>(holdings_.size());
  return more <= limit_ / (owners + 1) - HeldLocked(owner);
}

void ByteBudget::Release(const Held& held) {
  MutexLock lock(mutex_);
  if (held.owner == nullptr) {
    limit_ += held.bytes;
  } else {
    ReleaseLocked(held);
  }
}

void ByteBudget::SetAside(Held& held) {
  MutexLock lock(mutex_);
  ReleaseLocked(held);
  held.owner = nullptr;
  limit_ -= held.bytes;
}

void ByteBudget::ReleaseLocked(const Held& held) {
  used_ -= held.bytes;
  held.owner->second -= held.bytes;
  if (held.owner->second == 0) holdings_.erase(held.owner->first);
}

}  // namespace attnbias
