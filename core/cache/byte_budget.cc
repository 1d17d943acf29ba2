// SPDX-License-Identifier: Apache-2.0
#include "core/cache/byte_budget.h"

namespace attnbias {

std::optional<ByteBudget::Reservation> ByteBudget::Reserve(
    int64_t bytes, const std::string& holder) {
  MutexLock lock(mutex_);
  if (bytes > limit_ - used_) return std::nullopt;
  Holdings::value_type& entry = *holdings_.try_emplace(holder).first;
  entry.second.bytes += bytes;
  ++entry.second.count;
  used_ += bytes;
  return Reservation(this, &entry, bytes);
}

void ByteBudget::Refused(int64_t bytes, const std::string& holder) {
  MutexLock lock(mutex_);
  if (!IsWithinShareLocked(bytes, holder)) return;
  waits_until_.store(Clock::now() + kWait, std::memory_order_relaxed);
}

bool ByteBudget::WouldHaveTooMuch(int64_t bytes,
                                  const std::string& holder) const {
  if (Clock::now() >= waits_until_.load(std::memory_order_relaxed)) {
    return false;
  }
  MutexLock lock(mutex_);
  return !IsWithinShareLocked(bytes, holder);
}

bool ByteBudget::IsWithinShareLocked(int64_t more,
                                     const std::string& holder) const {
  const auto found = holdings_.find(holder);
  const int64_t held = found == holdings_.end() ? 0 : found->second.bytes;
  const auto holders = static_cast<int64_t>(holdings_.size());
  return more <= limit_ / (holders + 1) - held;
}

void ByteBudget::Release(Holdings::value_type* holder, int64_t bytes) {
  MutexLock lock(mutex_);
  used_ -= bytes;
  holder->second.bytes -= bytes;
  if (--holder->second.count == 0) holdings_.erase(holder->first);
}

}  // namespace attnbias
