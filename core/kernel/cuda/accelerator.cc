// SPDX-License-Identifier: Apache-2.0
#include "core/kernel/cuda/accelerator.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/base/errors.h"

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

Accelerator::Accelerator(std::unique_ptr<Device> device,
                         const AcceleratorOptions& options,
                         AcceleratorObserver* observer)
    : device_(std::move(device), observer),
      options_(options),
      pool_(std::make_shared<PinnedPool>(&*device_)) {}

bool Accelerator::Wants(int64_t bytes, bool cpu_writes_nothing) const {
  return device_.works() && bytes >= options_.min_bytes &&
         (!cpu_writes_nothing || options_.replace_slices);
}

std::shared_ptr<std::byte> Accelerator::AllocateHost(int64_t bytes) {
  absl::StatusOr<SharedMemory> memory = pool_->Allocate(bytes);
  return device_.Check(memory.status()) ? *std::move(memory) : nullptr;
}

std::unique_ptr<DenseExpander> Accelerator::MakeExpander(
    const DenseExpansion& expansion) {
  constexpr int64_t kMost = ExpansionLaunch::kMaxCount;
  if (!device_.works() || expansion.keys.size() > kMost ||
      expansion.queries.size() > kMost / expansion.lanes) {
    return nullptr;
  }
  auto expander = std::make_unique<DenseExpander>(&device_);
  return device_.Check(expander->Start(expansion)) ? std::move(expander)
                                                   : nullptr;
}

bool Accelerator::FillSinusoids(const SinusoidBlocks& blocks, std::byte* out,
                                std::vector<int64_t>* undecided) {
  // A block's elements are counted in 32 bits.
  constexpr int64_t kMost = int64_t{1} << 31;
  const SinusoidBlock& block = blocks.block;
  if (!device_.works() || blocks.block_rows * block.width > kMost ||
      !device_.Check(TryFillSinusoids(blocks, out, undecided))) {
    return false;
  }
  device_.Made(block.rows * block.width * SizeOf(blocks.type));
  return true;
}

std::unique_ptr<DeviceVectors> Accelerator::KeepVectors(
    const std::byte* numbers, int64_t bytes) {
  if (!device_.works() || !device_->has_products()) return nullptr;
  auto vectors = std::make_unique<DeviceVectors>(&device_);
  return device_.Check(vectors->Start(numbers, bytes)) ? std::move(vectors)
                                                       : nullptr;
}

}  // namespace attnbias
