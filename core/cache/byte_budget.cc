// SPDX-License-Identifier: Apache-2.0
#include "core/cache/byte_budget.h"

namespace attnbias {

std::optional<ByteBudget::Reservation> ByteBudget::Reserve(
    int64_t bytes, const Holder& holder) {
  MutexLock lock(mutex_);
  if (bytes > limit_ - used_ || bytes > holder.max_bytes - HeldLocked(holder)) {
    return std::nullopt;
  }
  Holdings::value_type& entry = *holdings_.try_emplace(holder.name).first;
  entry.second.bytes += bytes;
  ++entry.second.count;
  used_ += bytes;
  return Reservation(this, &entry, bytes);
}

bool ByteBudget::WouldExceedItsOwn(int64_t bytes, const Holder& holder) const {
  MutexLock lock(mutex_);
  return bytes > holder.max_bytes - HeldLocked(holder);
}

void ByteBudget::Refused(int64_t bytes, const Holder& holder) {
  MutexLock lock(mutex_);
  if (!IsWithinShareLocked(bytes, holder)) return;
  waits_until_.store(Clock::now() + kWait, std::memory_order_relaxed);
}

bool ByteBudget::WouldHaveTooMuch(int64_t bytes, const Holder& holder) const {
  if (Clock::now() >= waits_until_.load(std::memory_order_relaxed)) {
    return false;
  }
  MutexLock lock(mutex_);
  return !IsWithinShareLocked(bytes, holder);
}

int64_t ByteBudget::HeldLocked(const Holder& holder) const {
  const auto found = holdings_.find(holder.name);
  return found == holdings_.end() ? 0 : found->second.bytes;
}

bool ByteBudget::IsWithinShareLocked(int64_t more, const Holder& holder) const {
  const auto holders = static_cast<int64_t>(holdings_.size());
  return more <= limit_ / (holders + 1) - HeldLocked(holder);
}

void ByteBudget::Release(Holdings::value_type* holder, int64_t bytes) {
  MutexLock lock(mutex_);
  if (holder == nullptr) {
    limit_ += bytes;
  } else {
    ReleaseLocked(holder, bytes);
  }
}

void ByteBudget::SetAside(Reservation& reservation) {
  MutexLock lock(mutex_);
  ReleaseLocked(std::exchange(reservation.holder_, nullptr),
                reservation.bytes_);
  limit_ -= reservation.bytes_;
}

void ByteBudget::ReleaseLocked(Holdings::value_type* holder, int64_t bytes) {
  used_ -= bytes;
  holder->second.bytes -= bytes;
  if (--holder->second.count == 0) holdings_.erase(holder->first);
}

}  // namespace attnbias
