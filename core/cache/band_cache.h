// SPDX-License-Identifier: Apache-2.0
// Keeps bands, evicts the least recently used ones, and computes each band only once.
//
// A key contains everything that determines a band's values, not a hash of it. An entry holds all
// lanes over a span at least as wide as requested, so that it serves every shorter length, window
// and offset. A request for coordinates inside a span that is being computed joins the computation.
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
#include "core/base/executor.h"
#include "core/base/mutex.h"
#include "core/cache/byte_budget.h"
#include "core/encoding/encoding.h"
#include "core/tensor/positions.h"

namespace attnbias {

// An encoding's values over a span of coordinates, for all its lanes: row-major [lanes, span,
// coordinate_bytes], immutable once published. Payloads are slices of bands.
struct Band {
  Range span;
  // Bytes of one lane at one coordinate.
  int64_t coordinate_bytes = 0;
  BudgetedBuffer buffer;
  // Bytes that the cache entry occupies in addition to the values.
  int64_t entry_bytes = 0;
  ByteBudget::Reservation entry_memory;

  int64_t size_bytes() const { return buffer.bytes.size(); }
  int64_t budget_bytes() const { return size_bytes() + entry_bytes; }
  int64_t lane_bytes() const { return span.size() * coordinate_bytes; }
  const std::byte* At(int64_t lane, int64_t coordinate) const {
    return buffer.bytes.data() + lane * lane_bytes() + (coordinate - span.begin) * coordinate_bytes;
  }
};

using BandPtr = std::shared_ptr<const Band>;

// An evaluator whose memory counts against a budget while the evaluator lives.
struct BudgetedEvaluator {
  ByteBudget::Reservation memory;
  EvaluatorPtr numbers;  // destroyed first
};

// Observes a cache. The cache calls its observer from any thread, possibly with a lock held. An
// observer must therefore be quick and must not call the cache.
class CacheObserver {
 public:
  virtual ~CacheObserver() = default;
  virtual void OnHit() = 0;
  virtual void OnMiss() = 0;
  // A request joined a computation in flight.
  virtual void OnJoin() = 0;
  virtual void OnComputed(int64_t bytes) = 0;
  virtual void OnEvicted() = 0;
};

// A band to find or to compute.
struct BandSpec {
  std::string key;
  // Coordinates that the caller needs.
  Range wanted;
  // Coordinates of the band to compute; contains `wanted`.
  Range span;
  int64_t lanes = 0;
  int64_t coordinate_bytes = 0;
  // Encoding::evaluator_bytes for the evaluator that `prepare` returns.
  int64_t evaluator_bytes = 0;
  // Called at most once. Null if no band should be computed.
  std::function<EvaluatorPtr()> prepare;
};

// Thread-safe.
class BandCache {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<BandPtr>)>;

  // The pointees must outlive the cache. All tasks must have run before the cache is destroyed.
  BandCache(ByteBudget* budget, Executor* executor, CacheObserver* observer);

  // Returns a cached band that covers the span, or null.
  BandPtr Find(const std::string& key, Range span);

  // Calls `done` exactly once: inside this call, on an executor thread, or in DropCancelled. The
  // result is null if no band is cached and none is to be computed. The calling thread begins the
  // computation.
  //
  // RESOURCE_EXHAUSTED  the budget has no room
  // CANCELLED           the caller has cancelled
  void Get(BandSpec spec, CallerPtr caller, Done done);

  // Notifies callers that have cancelled, and stops computations with no active callers. Must be
  // called periodically.
  void DropCancelled();

  // Allocates memory. Evicts unused bands if the budget is used up, or bands made for the caller's
  // quota owner if the owner's maximum is reached.
  //
  // RESOURCE_EXHAUSTED  the memory in use leaves no room, or the owner holds its share while other
  //                     clients wait
  // INVALID_ARGUMENT    the bytes exceed the whole budget or the owner's maximum
  absl::StatusOr<BudgetedBuffer> Allocate(int64_t bytes, const Caller& caller);

  // Same as Allocate, for memory allocated elsewhere.
  absl::StatusOr<ByteBudget::Reservation> Reserve(int64_t bytes, const Caller& caller);

  // Makes an idle object evictable. The object holds `bytes` of the budget and has no other owners.
  void AddEvictable(std::shared_ptr<const void> idle, int64_t bytes);
  // Removes an object added by AddEvictable, unless it has been evicted.
  void RemoveEvictable(const void* idle);

  // Bytes cached, in use or not.
  int64_t kept_bytes() const {
    MutexLock lock(mutex_);
    return kept_bytes_;
  }

  // Returns the bytes that an entry occupies in addition to its values. The key is stored twice.
  static int64_t EntryBytes(const std::string& key) {
    return 512 + 2 * static_cast<int64_t>(key.size());
  }

  // Widens `span`, so that growing lengths share bands. If the span contains zero, its ends move
  // outward to powers of two. Otherwise it grows to whole aligned blocks whose size is a power of
  // two. The result is less than four times as large as `span`, and lies in `domain` if `span`
  // does.
  static Range Widen(Range span, Range domain);

 private:
  struct Entry {
    std::string key;
    BandPtr band;
  };
  using Entries = std::list<Entry>;

  struct Evictable {
    std::shared_ptr<const void> idle;
    int64_t bytes;
  };

  struct Waiter {
    CallerPtr caller;
    Done done;
  };

  // A computation in flight.
  struct InFlight {
    BandSpec spec;
    // The caller that acts for all waiters. Its work is charged to the first waiter's owner.
    CallerPtr caller;
    // Guarded by mutex_.
    std::vector<Waiter> waiters;
  };
  using InFlightPtr = std::shared_ptr<InFlight>;

  BandPtr FindLocked(const std::string& key, Range span) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Compute(const InFlightPtr& computation);
  void Fill(const InFlightPtr& computation, std::shared_ptr<Band> band,
            BudgetedEvaluator evaluator);
  // Removes one object, and returns it so that its memory can be released outside the lock. If
  // `maker` is not null, removes only a band made for `maker`. Returns null if nothing can be
  // evicted.
  std::shared_ptr<const void> EvictOne(const QuotaOwner* maker);
  // Completes a computation and notifies its waiters.
  void Complete(const InFlightPtr& computation, const absl::StatusOr<BandPtr>& result);
  absl::StatusOr<std::shared_ptr<Band>> AllocateBand(const InFlight& computation);
  void InsertLocked(const std::string& key, const BandPtr& band)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ByteBudget& budget_;
  Executor& executor_;
  CacheObserver& observer_;

  mutable Mutex mutex_;
  // Most recently used first.
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::vector<Entries::iterator>> by_key_ ABSL_GUARDED_BY(mutex_);
  // Longest idle first.
  std::list<Evictable> evictable_ ABSL_GUARDED_BY(mutex_);
  // Computations with waiters, by key.
  absl::flat_hash_map<std::string, std::vector<InFlightPtr>> in_flight_ ABSL_GUARDED_BY(mutex_);
  int64_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace attnbias
