// SPDX-License-Identifier: Apache-2.0
#include "core/engine/engine.h"

#include <algorithm>
#include <utility>

#include "core/base/errors.h"
#include "core/tensor/data_type.h"

namespace attnbias {
namespace {

// Divides the caller's memory, less the evaluator's, to give the maximum size of a cached band.
constexpr int64_t kLargestBandDivisor = 8;
// Scattered positions use a band of at most this many values per requested value.
constexpr int64_t kMostWaste = 8;

// Returns an evaluator with width 1 over relative positions that yields the mask's fill value at
// masked coordinates.
EvaluatorPtr Masked(EvaluatorPtr inner, const ResolvedMask& mask, DataType type) {
  const int64_t batch = inner->batch();
  auto fill = [inner = std::move(inner), mask, type](const Block& block, std::byte* out,
                                                     int64_t lane_stride_bytes) {
    const Range span = block.span;
    const Range visible = {std::clamp(mask.visible.begin, span.begin, span.end),
                           std::clamp(mask.visible.end, span.begin, span.end)};
    const auto at = [&](int64_t coordinate) {
      return out + (coordinate - span.begin) * SizeOf(type);
    };
    if (visible.size() > 0) {
      inner->Fill({block.lanes, visible}, at(visible.begin), lane_stride_bytes);
    }
    const auto* bits = reinterpret_cast<const std::byte*>(&mask.fill_bits);
    for (int64_t lane = 0; lane < block.lanes.size(); ++lane) {
      const int64_t offset = lane * lane_stride_bytes;
      Repeat(bits, SizeOf(type), visible.begin - span.begin, out + offset);
      Repeat(bits, SizeOf(type), span.end - visible.end, at(visible.end) + offset);
    }
  };
  return MakeEvaluator(std::move(fill), batch);
}

// Returns whether the values depend on a single integer coordinate.
bool HasBand(const Plan& plan) {
  return plan.encoding().structure != Structure::kDense && plan.window().reals == nullptr;
}

EvaluatorPtr Prepare(const Plan& plan, const KernelSet& kernels) {
  const Encoding& encoding = plan.encoding();
  if (plan.window().reals != nullptr) {
    return encoding.prepare_reals(plan.number_format(), plan.window().reals);
  }
  EvaluatorPtr evaluator = encoding.prepare(plan.number_format(), kernels);
  if (plan.band_mask().masks_nothing()) return evaluator;
  return Masked(std::move(evaluator), plan.band_mask(), plan.data_type());
}

}  // namespace

Engine::Engine(const EngineOptions& options, const KernelSet& kernels, Executor* executor,
               CacheObserver* observer)
    : options_(options),
      kernels_(kernels),
      executor_(*executor),
      budget_(options.memory_budget_bytes),
      cache_(&budget_, executor, observer) {}

absl::StatusOr<PlanPtr> Engine::MakePlan(v1::TensorSpec spec, const Tables& tables) const {
  return attnbias::MakePlan(std::move(spec), tables, options_.max_tensor_bytes);
}

PayloadPtr Engine::Find(const PlanPtr& plan, CallerPtr caller) {
  if (!HasBand(*plan)) return nullptr;
  BandPtr band = cache_.Find(plan->band_key(), plan->hull());
  if (band == nullptr) return nullptr;
  return MakePayload(plan, {.band = std::move(band), .caller = std::move(caller)});
}

void Engine::Get(const PlanPtr& plan, CallerPtr caller, Done done) {
  if (!HasBand(*plan)) return Compute(plan, std::move(caller), std::move(done));
  cache_.Get(BandFor(plan, caller->owner()), caller,
             [this, plan, caller, done = std::move(done)](absl::StatusOr<BandPtr> band) mutable {
               if (!band.ok()) return done(band.status());
               if (*band == nullptr) return Compute(plan, caller, std::move(done));
               done(MakePayload(plan, {.band = *std::move(band), .caller = caller}));
             });
}

absl::StatusOr<ByteBudget::Reservation> Engine::SetAside(int64_t bytes) {
  ATTNBIAS_ASSIGN_OR_RETURN(ByteBudget::Reservation memory,
                            cache_.Reserve(bytes, Caller("set aside")));
  memory.SetAside();
  return memory;
}

BandSpec Engine::BandFor(const PlanPtr& plan, const QuotaOwner& owner) const {
  const Encoding& encoding = plan->encoding();
  const Range hull = plan->hull();
  BandSpec band{.key = plan->band_key(), .wanted = hull};
  const int64_t wanted = plan->query_coordinates().size() * plan->key_coordinates().size();
  if (hull.size() / kMostWaste > wanted) return band;
  const int64_t memory = std::min(budget_.limit(), owner.max_bytes);
  const int64_t largest = (memory - encoding.evaluator_bytes) / kLargestBandDivisor;
  // Compared without computing a product, which could overflow.
  const auto fits = [&](Range span) {
    return span.size() <= largest / plan->element_bytes() / encoding.lanes;
  };
  if (!fits(hull)) return band;
  const Range wide = BandCache::Widen(hull, encoding.domain);
  band.span = fits(wide) ? wide : hull;
  band.lanes = encoding.lanes;
  band.coordinate_bytes = plan->element_bytes();
  band.evaluator_bytes = encoding.evaluator_bytes;
  band.prepare = [plan, &kernels = kernels_] { return Prepare(*plan, kernels); };
  return band;
}

void Engine::Compute(const PlanPtr& plan, CallerPtr caller, Done done) {
  absl::StatusOr<ByteBudget::Reservation> memory =
      cache_.Reserve(plan->encoding().evaluator_bytes, *caller);
  if (!memory.ok()) return done(memory.status());
  RunBlocking(
      executor_, caller, plan->encoding().takes_long_to_prepare(),
      [plan, &kernels = kernels_] { return Prepare(*plan, kernels); },
      [this, plan, caller, memory = *std::move(memory),
       done = std::move(done)](absl::StatusOr<EvaluatorPtr> made) mutable {
        if (!made.ok()) return done(made.status());
        done(MakePayload(plan, {.evaluator = {std::move(memory), *std::move(made)},
                                .caller = std::move(caller)}));
      });
}

PayloadPtr Engine::MakePayload(const PlanPtr& plan, NumberSource source) {
  return std::make_unique<Payload>(plan, std::move(source), kernels_, &cache_, &executor_);
}

}  // namespace attnbias
