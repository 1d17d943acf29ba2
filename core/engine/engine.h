// SPDX-License-Identifier: Apache-2.0
// Entry point of core: plans a request and then gets its payload.
//
//   absl::StatusOr<PlanPtr> plan = engine.MakePlan(spec);
//   engine.Get(*plan, caller, [](absl::StatusOr<PayloadPtr> payload) {});
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "core/base/executor.h"
#include "core/cache/band_cache.h"
#include "core/cache/byte_budget.h"
#include "core/engine/payload.h"
#include "core/engine/plan.h"
#include "core/request/rules.h"

namespace attnbias {

using PayloadPtr = std::unique_ptr<Payload>;

struct EngineOptions {
  // Maximum total size in bytes of the tensors that are computed, cached or in flight.
  int64_t memory_budget_bytes = int64_t{1} << 30;
  // Maximum size of a payload in bytes.
  int64_t max_tensor_bytes = int64_t{1} << 40;
};

// Thread-safe.
class Engine {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<PayloadPtr>)>;

  // The pointees must outlive the engine. All tasks must have run before the engine is destroyed.
  Engine(const EngineOptions& options, const KernelSet& kernels, Executor* executor,
         CacheObserver* observer);

  // Validates, resolves and names a request; computes no tensor. An error's message begins with the
  // field's path inside TensorSpec and ": ".
  //
  // INVALID_ARGUMENT  a value that is not allowed
  // OUT_OF_RANGE      positions for which the encoding has no values
  absl::StatusOr<PlanPtr> MakePlan(v1::TensorSpec spec, const Tables& tables) const;

  // Returns the payload if its band is cached, otherwise null.
  PayloadPtr Find(const PlanPtr& plan, CallerPtr caller);

  // Calls `done` exactly once, in the same way and with the same errors as BandCache::Get. If a
  // band is too large to cache, the payload is computed while it is read. The memory needed for
  // this also counts against the budget.
  void Get(const PlanPtr& plan, CallerPtr caller, Done done);

  // The cache. It also charges other memory to the budget and makes other objects evictable.
  BandCache& cache() { return cache_; }

  // Reserves memory that is never evicted, such as memory for mounted tables: the budget shrinks by
  // that amount until the memory is released.
  absl::StatusOr<ByteBudget::Reservation> SetAside(int64_t bytes);

  const KernelSet& kernels() const { return kernels_; }
  const EngineOptions& options() const { return options_; }
  const ByteBudget& budget() const { return budget_; }
  int64_t cached_bytes() const { return cache_.kept_bytes(); }

 private:
  // Returns the band to get from the cache. Its `prepare` is null if the band is too large to
  // cache, or much larger than the request.
  BandSpec BandFor(const PlanPtr& plan, const QuotaOwner& owner) const;
  // Passes `done` a payload that is computed while it is read.
  void Compute(const PlanPtr& plan, CallerPtr caller, Done done);
  PayloadPtr MakePayload(const PlanPtr& plan, NumberSource source);

  const EngineOptions options_;
  const KernelSet& kernels_;
  Executor& executor_;
  ByteBudget budget_;
  BandCache cache_;
};

}  // namespace attnbias
