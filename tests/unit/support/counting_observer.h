// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "core/cache/band_cache.h"

namespace attnbias {

struct CountingObserver final : CacheObserver {
  void OnHit() override { ++hits; }
  void OnMiss() override { ++misses; }
  void OnJoin() override { ++joins; }
  void OnComputed(int64_t) override { ++computed; }
  void OnEvicted() override { ++evicted; }

  std::atomic<int> hits{0};
  std::atomic<int> misses{0};
  std::atomic<int> joins{0};
  std::atomic<int> computed{0};
  std::atomic<int> evicted{0};
};

}  // namespace attnbias
