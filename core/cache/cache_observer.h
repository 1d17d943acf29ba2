// SPDX-License-Identifier: Apache-2.0
// What a cache tells whoever counts its hits, misses and evictions.
#ifndef ATTNBIAS_CORE_CACHE_CACHE_OBSERVER_H_
#define ATTNBIAS_CORE_CACHE_CACHE_OBSERVER_H_

#include <cstdint>

namespace attnbias {

// Told of what a cache does, for whoever measures. Called from any thread,
// possibly under the cache's lock: must be quick and never call back.
class CacheObserver {
 public:
  virtual ~CacheObserver() = default;
  virtual void OnHit() = 0;
  virtual void OnMiss() = 0;
  // A request that waits for a computation already under way.
  virtual void OnJoin() = 0;
  virtual void OnComputed(int64_t bytes) = 0;
  virtual void OnEvicted() = 0;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_CACHE_CACHE_OBSERVER_H_
