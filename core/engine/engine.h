// SPDX-License-Identifier: Apache-2.0
// The one door into core: plan a request, then get its payload.
//
//   absl::StatusOr<PlanPtr> plan = engine.MakePlan(spec);
//   engine.Get(*plan, caller, [](absl::StatusOr<PayloadPtr> payload) {});
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "core/base/caller.h"
#include "core/base/executor.h"
#include "core/cache/band_cache.h"
#include "core/cache/byte_budget.h"
#include "core/engine/payload.h"
#include "core/engine/plan.h"
#include "core/request/tables.h"

namespace attnbias {

using PayloadPtr = std::unique_ptr<Payload>;

struct EngineOptions {
  // Bytes of tensors computed, cached and in flight together.
  int64_t memory_budget_bytes = int64_t{1} << 30;
  // Payloads larger than this are refused.
  int64_t max_tensor_bytes = int64_t{1} << 40;
};

// Safe for any number of threads.
class Engine {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<PayloadPtr>)>;

  // The pointees outlive the engine. All tasks must have run before it goes.
  Engine(const EngineOptions& options, const KernelSet& kernels,
         Executor* executor, CacheObserver* observer);

  // Validates, resolves and names a request; computes no tensor. An error's
  // message begins with the field's path inside TensorSpec and ": ".
  //
  // INVALID_ARGUMENT  what is not allowed
  // OUT_OF_RANGE      positions that the encoding has no numbers for
  absl::StatusOr<PlanPtr> MakePlan(v1::TensorSpec spec,
                                   const Tables& tables) const;

  // The payload, if no band has to be computed for it. Null otherwise.
  PayloadPtr Find(const PlanPtr& plan, CallerPtr caller);

  // Calls `done` exactly once, as BandCache::Get does, with its errors. Where a
  // band is too large to keep, the payload computes while it is read. What it
  // keeps for that counts against the budget too.
  void Get(const PlanPtr& plan, CallerPtr caller, Done done);

  // Whose memory is of the budget too: for what is computed beside tensors, and
  // for what is parked.
  BandCache& cache() { return cache_; }

  // Memory for what stays, such as mounted tables: the budget is smaller by it
  // until it is given back.
  absl::StatusOr<ByteBudget::Reservation> SetAside(int64_t bytes);

  const KernelSet& kernels() const { return kernels_; }
  const EngineOptions& options() const { return options_; }
  const ByteBudget& budget() const { return budget_; }
  int64_t cached_bytes() const { return cache_.kept_bytes(); }

 private:
  // The band to get from the cache. It is not to be made if it is too large to
  // keep, or holds much more than is asked for.
  BandSpec BandFor(const PlanPtr& plan, const QuotaOwner& owner) const;
  // A payload that computes while it is read.
  void Compute(const PlanPtr& plan, CallerPtr caller, Done done);
  PayloadPtr MakePayload(const PlanPtr& plan, NumberSource source);

  const EngineOptions options_;
  const KernelSet& kernels_;
  Executor& executor_;
  ByteBudget budget_;
  BandCache cache_;
};

}  // namespace attnbias
