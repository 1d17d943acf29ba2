// SPDX-License-Identifier: Apache-2.0
#include "core/cache/band_cache.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"

namespace attnbias {
namespace {

int64_t BandBytes(const BandSpec& spec) {
  return spec.lanes * spec.span.size() * spec.coordinate_bytes;
}

int64_t RoundUpToPowerOfTwo(int64_t value) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(value)));
}

absl::Status FairShareExceeded() {
  return absl::ResourceExhaustedError(
      "this client has used up its share of the memory, and others are waiting; try again later");
}

absl::Status NoRoomFor(int64_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the memory budget has no room for ", bytes, " more bytes; try again later"));
}

absl::Status TooManyBytes(int64_t bytes, int64_t most, absl::string_view why) {
  return Invalid("request: needs ", bytes, " bytes of memory at once, want at most ", most, why);
}

}  // namespace

BandCache::BandCache(ByteBudget* budget, Executor* executor, CacheObserver* observer)
    : budget_(*budget), executor_(*executor), observer_(*observer) {}

Range BandCache::Widen(Range span, Range domain) {
  Range wide;
  if (span.begin <= 0 && span.end > 0) {
    wide.begin = span.begin == 0 ? 0 : -RoundUpToPowerOfTwo(-span.begin);
    wide.end = RoundUpToPowerOfTwo(span.end);
  } else {
    const int64_t mask = RoundUpToPowerOfTwo(span.size()) - 1;
    wide.begin = span.begin & ~mask;
    wide.end = (span.end + mask) & ~mask;
  }
  return {std::max(wide.begin, std::min(domain.begin, span.begin)),
          std::min(wide.end, std::max(domain.end, span.end))};
}

BandPtr BandCache::Find(const std::string& key, Range span) {
  MutexLock lock(mutex_);
  return FindLocked(key, span);
}

BandPtr BandCache::FindLocked(const std::string& key, Range span) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  for (const Entries::iterator entry : found->second) {
    if (!entry->band->span.Contains(span)) continue;
    entries_.splice(entries_.begin(), entries_, entry);
    observer_.OnHit();
    return entry->band;
  }
  return nullptr;
}

void BandCache::Get(BandSpec spec, CallerPtr caller, Done done) {
  mutex_.Lock();
  BandPtr band = FindLocked(spec.key, spec.wanted);
  if (band != nullptr || spec.prepare == nullptr) {
    mutex_.Unlock();
    return done(std::move(band));
  }
  // Checked before other callers can join: this caller's quota does not apply to them.
  if (budget_.WouldExceedFairShare(BandBytes(spec) + spec.evaluator_bytes, caller->owner())) {
    mutex_.Unlock();
    return done(FairShareExceeded());
  }
  std::vector<InFlightPtr>& computations = in_flight_[spec.key];
  const auto joined = std::ranges::find_if(computations, [&spec](const InFlightPtr& computation) {
    return computation->spec.span.Contains(spec.wanted);
  });
  if (joined != computations.end()) {
    observer_.OnJoin();
    (*joined)->waiters.push_back({std::move(caller), std::move(done)});
    mutex_.Unlock();
    return;
  }
  observer_.OnMiss();
  const auto computation = std::make_shared<InFlight>(
      InFlight{std::move(spec), std::make_shared<Caller>(caller->owner()), {}});
  computation->waiters.push_back({std::move(caller), std::move(done)});
  computations.push_back(computation);
  mutex_.Unlock();
  Compute(computation);
}

void BandCache::Compute(const InFlightPtr& computation) {
  if (computation->caller->cancelled()) {
    return Complete(computation, absl::CancelledError("every caller has canceled"));
  }
  const BandSpec& spec = computation->spec;
  absl::StatusOr<std::shared_ptr<Band>> band = AllocateBand(*computation);
  if (!band.ok()) return Complete(computation, band.status());
  absl::StatusOr<ByteBudget::Reservation> memory =
      Reserve(spec.evaluator_bytes, *computation->caller);
  if (!memory.ok()) return Complete(computation, memory.status());
  RunBlocking(
      executor_, computation->caller, spec.evaluator_bytes > 0,
      [computation] { return computation->spec.prepare(); },
      [this, computation, band = *std::move(band),
       memory = *std::move(memory)](absl::StatusOr<EvaluatorPtr> made) mutable {
        if (!made.ok()) return Complete(computation, made.status());
        Fill(computation, std::move(band), {std::move(memory), *std::move(made)});
      });
}

void BandCache::Fill(const InFlightPtr& computation, std::shared_ptr<Band> band,
                     BudgetedEvaluator evaluator) {
  const int64_t batch = evaluator.numbers->batch();
  // Owns the evaluator, which is destroyed before the waiters are notified.
  auto fill = [computation, band, evaluator = std::move(evaluator)](int64_t begin, int64_t end) {
    const BandSpec& spec = computation->spec;
    evaluator.numbers->Fill({{0, spec.lanes}, {spec.span.begin + begin, spec.span.begin + end}},
                            band->buffer.bytes.data() + begin * spec.coordinate_bytes,
                            band->lane_bytes());
    return absl::OkStatus();
  };
  ForRanges(executor_, computation->caller, computation->spec.span.size(), batch, std::move(fill),
            [this, computation, band](const absl::Status& status) {
              if (!status.ok()) return Complete(computation, status);
              observer_.OnComputed(band->size_bytes());
              Complete(computation, BandPtr(band));
            });
}

absl::StatusOr<std::shared_ptr<Band>> BandCache::AllocateBand(const InFlight& computation) {
  const BandSpec& spec = computation.spec;
  auto band = std::make_shared<Band>();
  ATTNBIAS_ASSIGN_OR_RETURN(band->buffer, Allocate(BandBytes(spec), *computation.caller));
  band->entry_bytes = EntryBytes(spec.key);
  ATTNBIAS_ASSIGN_OR_RETURN(band->entry_memory, Reserve(band->entry_bytes, *computation.caller));
  band->span = spec.span;
  band->coordinate_bytes = spec.coordinate_bytes;
  return band;
}

absl::StatusOr<BudgetedBuffer> BandCache::Allocate(int64_t bytes, const Caller& caller) {
  ATTNBIAS_ASSIGN_OR_RETURN(auto reservation, Reserve(bytes, caller));
  BudgetedBuffer buffer{std::move(reservation), AlignedBuffer(bytes)};
  if (buffer.bytes.data() == nullptr) return NoRoomFor(bytes);
  return buffer;
}

absl::StatusOr<ByteBudget::Reservation> BandCache::Reserve(int64_t bytes, const Caller& caller) {
  const QuotaOwner& owner = caller.owner();
  if (bytes > budget_.limit()) {
    return TooManyBytes(bytes, budget_.limit(), ", the whole memory budget");
  }
  if (bytes > owner.max_bytes) {
    return TooManyBytes(bytes, owner.max_bytes, ", this caller's limit");
  }
  if (bytes == 0) return ByteBudget::Reservation();
  if (budget_.WouldExceedFairShare(bytes, owner)) return FairShareExceeded();
  for (;;) {
    if (auto reservation = budget_.Reserve(bytes, owner)) return *std::move(reservation);
    const bool own = budget_.WouldExceedOwnLimit(bytes, owner);
    if (EvictOne(own ? &owner : nullptr) != nullptr) continue;
    if (own) {
      return CallerLimit(absl::StrCat("this caller has reached its memory limit of ",
                                      owner.max_bytes, " bytes; try again later"));
    }
    budget_.Refused(bytes, owner);
    return NoRoomFor(bytes);
  }
}

std::shared_ptr<const void> BandCache::EvictOne(const QuotaOwner* maker) {
  MutexLock lock(mutex_);
  // Evicting a band in use would free nothing.
  const auto last = std::find_if(entries_.rbegin(), entries_.rend(), [maker](const Entry& entry) {
    return entry.band.use_count() == 1 &&
           (maker == nullptr || entry.band->buffer.reservation.owner() == maker->name);
  });
  if (last != entries_.rend()) {
    const auto entry = std::prev(last.base());
    const BandPtr evicted = std::move(entry->band);
    const auto found = by_key_.find(entry->key);
    std::erase(found->second, entry);
    if (found->second.empty()) by_key_.erase(found);
    entries_.erase(entry);
    kept_bytes_ -= evicted->budget_bytes();
    observer_.OnEvicted();
    return evicted;
  }
  if (maker != nullptr || evictable_.empty()) return nullptr;
  const Evictable evicted = std::move(evictable_.front());
  evictable_.pop_front();
  kept_bytes_ -= evicted.bytes;
  return evicted.idle;
}

void BandCache::AddEvictable(std::shared_ptr<const void> idle, int64_t bytes) {
  MutexLock lock(mutex_);
  evictable_.push_back({std::move(idle), bytes});
  kept_bytes_ += bytes;
}

void BandCache::RemoveEvictable(const void* idle) {
  MutexLock lock(mutex_);
  const auto found = std::ranges::find_if(
      evictable_, [idle](const Evictable& evictable) { return evictable.idle.get() == idle; });
  if (found == evictable_.end()) return;
  kept_bytes_ -= found->bytes;
  evictable_.erase(found);
}

void BandCache::DropCancelled() {
  std::vector<Waiter> cancelled;
  // Moves cancelled waiters out of the computation. Returns true if no waiters remain, in which
  // case no call may join the computation.
  const auto drop = [&cancelled](const InFlightPtr& computation) {
    std::vector<Waiter>& waiters = computation->waiters;
    const auto gone = std::partition(waiters.begin(), waiters.end(), [](const Waiter& waiter) {
      return !waiter.caller->cancelled();
    });
    std::move(gone, waiters.end(), std::back_inserter(cancelled));
    waiters.erase(gone, waiters.end());
    if (waiters.empty()) computation->caller->Cancel();
    return waiters.empty();
  };
  {
    MutexLock lock(mutex_);
    absl::erase_if(in_flight_, [&drop](auto& entry) {
      std::erase_if(entry.second, drop);
      return entry.second.empty();
    });
  }
  for (Waiter& waiter : cancelled) {
    waiter.done(absl::CancelledError("the caller has canceled"));
  }
}

void BandCache::Complete(const InFlightPtr& computation, const absl::StatusOr<BandPtr>& result) {
  std::vector<Waiter> waiters;
  {
    MutexLock lock(mutex_);
    if (result.ok()) InsertLocked(computation->spec.key, *result);
    if (const auto found = in_flight_.find(computation->spec.key); found != in_flight_.end()) {
      std::erase(found->second, computation);
      if (found->second.empty()) in_flight_.erase(found);
    }
    waiters = std::exchange(computation->waiters, {});
  }
  if (waiters.empty()) return;
  // The first waiter continues on this thread, which usually did the computation for that waiter.
  for (auto joined = waiters.begin() + 1; joined != waiters.end(); ++joined) {
    executor_.Schedule(joined->caller, [done = std::move(joined->done), result = result]() mutable {
      done(std::move(result));
    });
  }
  waiters.front().done(result);
}

void BandCache::InsertLocked(const std::string& key, const BandPtr& band) {
  std::vector<Entries::iterator>& siblings = by_key_[key];
  const auto covered = std::partition(
      siblings.begin(), siblings.end(),
      [&](Entries::iterator entry) { return !band->span.Contains(entry->band->span); });
  for (auto entry = covered; entry != siblings.end(); ++entry) {
    kept_bytes_ -= (*entry)->band->budget_bytes();
    entries_.erase(*entry);
  }
  siblings.erase(covered, siblings.end());
  entries_.push_front({key, band});
  siblings.push_back(entries_.begin());
  kept_bytes_ += band->budget_bytes();
}

}  // namespace attnbias
