// SPDX-License-Identifier: Apache-2.0
#include "core/kernel/cuda/pinned_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/base/status_macros.h"

namespace attnbias {
namespace {

constexpr int64_t kMaxPooledBytes = int64_t{64} << 20;
constexpr int64_t kMinBytes = int64_t{64} << 10;

}  // namespace

absl::StatusOr<SharedMemory> PinnedPool::Allocate(int64_t bytes) {
  const auto size = static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(std::max(bytes, kMinBytes))));
  SharedMemory memory = Take(size);
  if (memory == nullptr) {
    ATTNBIAS_ASSIGN_OR_RETURN(memory, device_.AllocateHost(size));
  }
  std::byte* const data = memory.get();
  return SharedMemory(data, [pool = shared_from_this(), size,
                             memory = std::move(memory)](std::byte*) mutable {
    const MutexLock lock(pool->mutex_);
    if (pool->free_bytes_ + size > kMaxPooledBytes) return;
    pool->free_.emplace(size, std::move(memory));
    pool->free_bytes_ += size;
  });
}

SharedMemory PinnedPool::Take(int64_t size) {
  const MutexLock lock(mutex_);
  const auto found = free_.find(size);
  if (found == free_.end()) return nullptr;
  SharedMemory memory = std::move(found->second);
  free_.erase(found);
  free_bytes_ -= size;
  return memory;
}

}  // namespace attnbias
