// SPDX-License-Identifier: Apache-2.0
// Keeps bands, least recently used first out, and makes each only once.
//
// The key is the value that determines the numbers, never a hash of it. An
// entry holds all lanes over a span at least as wide as asked for, so that it
// serves every shorter length, window and offset; a request inside a span that
// is being computed waits for that flight instead of starting another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "core/base/caller.h"
#include "core/base/executor.h"
#include "core/base/mutex.h"
#include "core/cache/byte_budget.h"
#include "core/encoding/encoding.h"
#include "core/tensor/range.h"

namespace attnbias {

// A band: an encoding's numbers over a span of coordinates, for all its lanes.
// It is what the cache keeps and what payloads are slices of.
//
// Row-major [lanes, span, coordinate_bytes], immutable once published.
struct Band {
  Range span;
  // Bytes of one lane at one coordinate.
  int64_t coordinate_bytes = 0;
  BudgetedBuffer buffer;
  // The bytes that the cache takes to keep the band.
  int64_t entry_bytes = 0;
  ByteBudget::Reservation entry_memory;

  int64_t size_bytes() const { return buffer.bytes.size(); }
  int64_t budget_bytes() const { return size_bytes() + entry_bytes; }
  int64_t lane_bytes() const { return span.size() * coordinate_bytes; }
  const std::byte* At(int64_t lane, int64_t coordinate) const {
    return buffer.bytes.data() + lane * lane_bytes() +
           (coordinate - span.begin) * coordinate_bytes;
  }
};

using BandPtr = std::shared_ptr<const Band>;

// An evaluator whose memory counts against a budget for as long as it lives.
struct BudgetedEvaluator {
  ByteBudget::Reservation memory;
  EvaluatorPtr numbers;  // goes first
};

// Measures what a cache does. The cache calls it from any thread, possibly
// under its lock: an observer must be quick and never call back.
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

// A band to be found or made.
struct BandSpec {
  std::string key;
  // Coordinates that the caller needs.
  Range wanted;
  // Coordinates of the band that is made; they contain `wanted`.
  Range span;
  int64_t lanes = 0;
  int64_t coordinate_bytes = 0;
  // As in Encoding, of what `prepare` makes.
  int64_t evaluator_bytes = 0;
  // Called at most once. Null if no band is to be made.
  std::function<EvaluatorPtr()> prepare;
};

// Safe for any number of threads.
class BandCache {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<BandPtr>)>;

  // The pointees outlive the cache. All tasks must have run before it goes.
  BandCache(ByteBudget* budget, Executor* executor, CacheObserver* observer);

  // The band, if one that covers the span is kept.
  BandPtr Find(const std::string& key, Range span);

  // Calls `done` exactly once, with null if no band is kept or to be made:
  // inside this call, on a thread of the executor, or in DropCancelled. If the
  // band has to be made, the calling thread begins with that.
  //
  // RESOURCE_EXHAUSTED  the budget has no room
  // CANCELLED           the caller has cancelled
  void Get(BandSpec spec, CallerPtr caller, Done done);

  // Lets go of callers who have cancelled, and stops the computations that
  // nobody waits for any more. To be called from time to time.
  void DropCancelled();

  // Allocates memory, and evicts unused bands if the budget is used up, or
  // bands of the caller's owner if that has all that it may have. The bands
  // that were made for an owner count for it.
  //
  // RESOURCE_EXHAUSTED  what is held leaves no room, or the owner has its share
  //                     while others wait
  // INVALID_ARGUMENT    it is more than the whole budget, or than the owner may
  //                     have
  absl::StatusOr<BudgetedBuffer> Allocate(int64_t bytes, const Caller& caller);

  // A part of the budget for memory from elsewhere, likewise.
  absl::StatusOr<ByteBudget::Reservation> Reserve(int64_t bytes,
                                                  const Caller& caller);

  // Keeps something whose `bytes` are of the budget, and which nobody else
  // holds, until somebody needs the memory or its owner wants it back.
  void Park(std::shared_ptr<const void> idle, int64_t bytes);
  // Gives it up to whoever holds it now.
  void Unpark(const void* idle);

  // Bytes kept, whether or not anyone else holds them too.
  int64_t kept_bytes() const {
    MutexLock lock(mutex_);
    return kept_bytes_;
  }

  // What an entry takes beside its numbers; its key stands in it twice.
  static int64_t EntryBytes(const std::string& key) {
    return 512 + 2 * static_cast<int64_t>(key.size());
  }

  // Widens `span` outwards to powers of two on either side of zero, or to whole
  // aligned blocks of a power of two where zero lies outside, so that growing
  // lengths meet the same bands: to less than four times its size. The result
  // lies in `domain` when `span` does.
  static Range Widen(Range span, Range domain);

 private:
  struct Entry {
    std::string key;
    BandPtr band;
  };
  using Entries = std::list<Entry>;

  struct Parked {
    std::shared_ptr<const void> idle;
    int64_t bytes;
  };

  struct Waiter {
    CallerPtr caller;
    Done done;
  };

  // A computation under way.
  struct Flight {
    BandSpec spec;
    // On behalf of all that wait; charged to the owner of the first.
    CallerPtr caller;
  };
  using FlightPtr = std::shared_ptr<const Flight>;

  BandPtr FindLocked(const std::string& key, Range span)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A new flight, to be begun, or null if the waiter has joined another's.
  FlightPtr BoardLocked(BandSpec spec, Waiter waiter)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Compute(const FlightPtr& flight);
  void Fill(const FlightPtr& flight, std::shared_ptr<Band> band,
            BudgetedEvaluator evaluator);
  // Removes one band, of those that were made for `maker` unless it is null,
  // and returns it for release; null if nothing can go.
  std::shared_ptr<const void> EvictOne(const QuotaOwner* maker);
  void RemoveFlightLocked(const FlightPtr& flight)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends a flight: tells all that wait.
  void Land(const FlightPtr& flight, const absl::StatusOr<BandPtr>& result);
  absl::StatusOr<std::shared_ptr<Band>> AllocateBand(const Flight& flight);
  void InsertLocked(const std::string& key, const BandPtr& band)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ByteBudget& budget_;
  Executor& executor_;
  CacheObserver& observer_;

  mutable Mutex mutex_;
  // Most recently used first.
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::vector<Entries::iterator>> by_key_
      ABSL_GUARDED_BY(mutex_);
  // Longest idle first.
  std::list<Parked> parked_ ABSL_GUARDED_BY(mutex_);
  // Those that can be joined, by key.
  absl::flat_hash_map<std::string, std::vector<FlightPtr>> flights_
      ABSL_GUARDED_BY(mutex_);
  // Of each flight, until it has landed.
  absl::flat_hash_map<FlightPtr, std::vector<Waiter>> waiters_
      ABSL_GUARDED_BY(mutex_);
  int64_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace attnbias
