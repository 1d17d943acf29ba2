// SPDX-License-Identifier: Apache-2.0
#include "core/cache/band_cache.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"

namespace attnbias {
namespace {

// A unit of work between two looks at cancellation, and of sharing between
// threads, where an evaluator's own is not smaller.
constexpr int64_t kBlockBytes = int64_t{1} << 20;

int64_t RoundUpToPowerOfTwo(int64_t value) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(value)));
}

absl::Status NoRoomFor(int64_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the memory budget has no room for ", bytes,
                   " more bytes; try again later"));
}

}  // namespace

BandCache::BandCache(ByteBudget* budget, Executor* executor,
                     CacheObserver* observer)
    : budget_(*budget), executor_(*executor), observer_(*observer) {}

Range BandCache::Widen(Range span, Range domain) {
  Range wide;
  if (span.begin <= 0 && span.end > 0) {
    wide.begin = span.begin == 0 ? 0 : -RoundUpToPowerOfTwo(-span.begin);
    wide.end = RoundUpToPowerOfTwo(span.end);
  } else {
    const int64_t block = RoundUpToPowerOfTwo(span.size());
    const int64_t mask = block - 1;
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

void BandCache::Get(BandSpec spec, CancellationPtr cancellation, Done done) {
  mutex_.Lock();
  if (BandPtr band = FindLocked(spec.key, spec.span)) {
    mutex_.Unlock();
    return done(std::move(band));
  }
  const FlightPtr flight =
      BoardLocked(std::move(spec), {std::move(cancellation), std::move(done)});
  mutex_.Unlock();
  if (flight == nullptr) return;
  if (!executor_.Schedule([this, flight] { Land(flight, Compute(flight)); })) {
    Land(flight, absl::ResourceExhaustedError(
                     "the queue of computations is full; try again later"));
  }
}

BandCache::FlightPtr BandCache::BoardLocked(BandSpec spec, Waiter waiter) {
  std::vector<FlightPtr>& flights = flights_[spec.key];
  for (const FlightPtr& other : flights) {
    if (!other->span.Contains(spec.span)) continue;
    observer_.OnJoin();
    waiters_[other].push_back(std::move(waiter));
    return nullptr;
  }
  observer_.OnMiss();
  auto flight = std::make_shared<const BandSpec>(std::move(spec));
  waiters_[flight].push_back(std::move(waiter));
  flights.push_back(flight);
  return flight;
}

absl::StatusOr<BandPtr> BandCache::Compute(const FlightPtr& flight) {
  const BandSpec& spec = *flight;
  if (Abandon(flight)) return absl::CancelledError("nobody waits any more");
  const int64_t bytes = spec.lanes * spec.span.size() * spec.coordinate_bytes;
  auto band = std::make_shared<Band>();
  ATTNBIAS_ASSIGN_OR_RETURN(band->buffer, Allocate(bytes));
  band->span = spec.span;
  band->lanes = spec.lanes;
  band->coordinate_bytes = spec.coordinate_bytes;

  ATTNBIAS_ASSIGN_OR_RETURN(const auto evaluator_memory,
                            Reserve(spec.evaluator_bytes));
  const EvaluatorPtr evaluator = spec.prepare();
  const int64_t step =
      std::clamp<int64_t>(kBlockBytes / (spec.lanes * spec.coordinate_bytes), 1,
                          evaluator->coordinates_at_once());
  const int64_t blocks = (spec.span.size() + step - 1) / step;
  std::atomic<bool> abandoned{false};
  ParallelFor(executor_, blocks, [&](int64_t block) {
    if (abandoned || Abandon(flight)) {
      abandoned = true;
      return;
    }
    const int64_t begin = spec.span.begin + block * step;
    const Range span{begin, std::min(begin + step, spec.span.end)};
    evaluator->Fill({{0, spec.lanes}, span},
                    band->buffer.bytes.data() +
                        (begin - spec.span.begin) * spec.coordinate_bytes,
                    band->lane_bytes());
  });
  if (abandoned) return absl::CancelledError("nobody waits any more");
  observer_.OnComputed(bytes);
  return band;
}

absl::StatusOr<BudgetedBuffer> BandCache::Allocate(int64_t bytes) {
  ATTNBIAS_ASSIGN_OR_RETURN(auto reservation, Reserve(bytes));
  BudgetedBuffer buffer{std::move(reservation), AlignedBuffer(bytes)};
  if (buffer.bytes.data() == nullptr) return NoRoomFor(bytes);
  return buffer;
}

absl::StatusOr<ByteBudget::Reservation> BandCache::Reserve(int64_t bytes) {
  if (bytes > budget_.limit()) {
    return Invalid("request: needs ", bytes,
                   " bytes of memory at once, want at most ", budget_.limit(),
                   ", the whole memory budget");
  }
  if (auto reservation = ReserveEvicting(bytes)) return *std::move(reservation);
  return NoRoomFor(bytes);
}

std::optional<ByteBudget::Reservation> BandCache::ReserveEvicting(
    int64_t bytes) {
  for (;;) {
    if (auto reservation = budget_.Reserve(bytes)) return reservation;
    // Freed outside the lock. A band that someone else holds would free
    // nothing.
    BandPtr evicted;
    MutexLock lock(mutex_);
    const auto last = std::find_if(
        entries_.rbegin(), entries_.rend(),
        [](const Entry& entry) { return entry.band.use_count() == 1; });
    if (last == entries_.rend()) return std::nullopt;
    const auto entry = std::prev(last.base());
    evicted = std::move(entry->band);
    const auto found = by_key_.find(entry->key);
    std::erase(found->second, entry);
    if (found->second.empty()) by_key_.erase(found);
    entries_.erase(entry);
    kept_bytes_ -= evicted->size_bytes();
    observer_.OnEvicted();
  }
}

bool BandCache::Abandon(const FlightPtr& flight) {
  MutexLock lock(mutex_);
  for (const Waiter& waiter : waiters_[flight]) {
    if (!waiter.cancellation->cancelled()) return false;
  }
  RemoveFlightLocked(flight);
  return true;
}

void BandCache::RemoveFlightLocked(const FlightPtr& flight) {
  const auto found = flights_.find(flight->key);
  if (found == flights_.end()) return;
  std::erase(found->second, flight);
  if (found->second.empty()) flights_.erase(found);
}

void BandCache::Land(const FlightPtr& flight,
                     const absl::StatusOr<BandPtr>& result) {
  std::vector<Waiter> waiters;
  {
    MutexLock lock(mutex_);
    if (result.ok()) InsertLocked(flight->key, *result);
    RemoveFlightLocked(flight);
    waiters = std::move(waiters_.extract(flight).mapped());
  }
  for (Waiter& waiter : waiters) waiter.done(result);
}

void BandCache::InsertLocked(const std::string& key, const BandPtr& band) {
  std::vector<Entries::iterator>& siblings = by_key_[key];
  const auto covered = std::partition(
      siblings.begin(), siblings.end(), [&](Entries::iterator entry) {
        return !band->span.Contains(entry->band->span);
      });
  for (auto entry = covered; entry != siblings.end(); ++entry) {
    kept_bytes_ -= (*entry)->band->size_bytes();
    entries_.erase(*entry);
  }
  siblings.erase(covered, siblings.end());
  entries_.push_front({key, band});
  siblings.push_back(entries_.begin());
  kept_bytes_ += band->size_bytes();
}

}  // namespace attnbias
