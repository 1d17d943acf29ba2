// SPDX-License-Identifier: Apache-2.0
#include "core/cache/band_cache.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/await.h"
#include "tests/unit/support/counting_observer.h"
#include "tests/unit/support/status_matchers.h"
#include "tests/unit/support/threads.h"

namespace attnbias::band_cache_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// An event that threads wait for.
class Gate {
 public:
  void Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    opened_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

// Returns an evaluator whose value at each coordinate is the coordinate itself.
EvaluatorPtr Identity(Gate* started = nullptr, Gate* gate = nullptr) {
  return MakeEvaluator([=](const Block& block, std::byte* out, int64_t) {
    if (started != nullptr) started->Open();
    if (gate != nullptr) gate->Wait();
    auto* numbers = reinterpret_cast<int32_t*>(out);
    for (int64_t r = block.span.begin; r < block.span.end; ++r) {
      *numbers++ = static_cast<int32_t>(r);
    }
  });
}

BandSpec Spec(std::string key, Range span, Gate* started = nullptr, Gate* gate = nullptr) {
  return {.key = std::move(key),
          .wanted = span,
          .span = span,
          .lanes = 1,
          .coordinate_bytes = 4,
          .prepare = [=] { return Identity(started, gate); }};
}

// A result delivered on another thread.
class Result {
 public:
  BandCache::Done Callback() {
    return [this](absl::StatusOr<BandPtr> result) {
      result_ = std::move(result);
      arrived_.Open();
    };
  }
  const absl::StatusOr<BandPtr>& Wait() {
    arrived_.Wait();
    return result_;
  }

 private:
  absl::StatusOr<BandPtr> result_ = absl::UnknownError("has not arrived");
  Gate arrived_;
};

// Size of an entry with a one-letter key.
const int64_t kEntry = BandCache::EntryBytes("a");

class BandCacheTest : public ::testing::Test {
 protected:
  ~BandCacheTest() override { threads_.Join(); }

  absl::StatusOr<BandPtr> TryGet(const BandSpec& spec,
                                 const CallerPtr& caller = std::make_shared<Caller>()) {
    return Await<absl::StatusOr<BandPtr>>(
        [&](auto done) { cache_.Get(spec, caller, std::move(done)); });
  }

  BandPtr Get(const BandSpec& spec) {
    const absl::StatusOr<BandPtr> band = TryGet(spec);
    EXPECT_THAT(band, IsOk());
    return band.value_or(nullptr);
  }

  // The thread that delivered a band releases it shortly afterwards; until then it counts as in
  // use.
  static void WaitForHolders(const BandPtr& band, long holders) {
    while (band.use_count() > holders) std::this_thread::yield();
  }

  CountingObserver observer_;
  ByteBudget budget_{6000};
  Threads threads_{2};
  BandCache cache_{&budget_, &threads_, &observer_};
};

TEST_F(BandCacheTest, KeepsComputedBandAndServesSubspans) {
  const BandPtr band = Get(Spec("a", {-8, 8}));
  EXPECT_EQ(*reinterpret_cast<const int32_t*>(band->At(0, -3)), -3);
  EXPECT_EQ(Get(Spec("a", {-2, 5})), band);
  EXPECT_EQ(cache_.Find("a", {7, 8}), band);
  EXPECT_EQ(cache_.Find("a", {7, 9}), nullptr);
  EXPECT_EQ(cache_.Find("b", {7, 8}), nullptr);
  EXPECT_EQ(observer_.computed, 1);
  EXPECT_EQ(budget_.used(), 64 + kEntry);
}

TEST_F(BandCacheTest, WiderBandReplacesCoveredBands) {
  // Held by the cache and the test.
  WaitForHolders(Get(Spec("a", {0, 8})), 2);
  WaitForHolders(Get(Spec("a", {100, 108})), 2);
  Get(Spec("a", {0, 16}));
  EXPECT_EQ(cache_.kept_bytes(), (8 + 16) * 4 + 2 * kEntry);
  EXPECT_EQ(budget_.used(), (8 + 16) * 4 + 2 * kEntry);
}

TEST_F(BandCacheTest, ConcurrentRequestsShareOneComputation) {
  Gate started;
  Gate gate;
  std::vector<std::unique_ptr<Result>> results;
  std::vector<std::thread> threads;
  for (int i = 0; i < 64; ++i) {
    results.push_back(std::make_unique<Result>());
    threads.emplace_back([&, result = results.back().get(), i] {
      cache_.Get(Spec("a", {-(i == 0 ? 64 : 1), 64}, &started, &gate), std::make_shared<Caller>(),
                 result->Callback());
    });
    if (i == 0) started.Wait();
  }
  // The first call computes; the others do not wait for it.
  for (int i = 1; i < 64; ++i) threads[i].join();
  gate.Open();
  threads[0].join();
  for (const auto& result : results) {
    ASSERT_THAT(result->Wait(), IsOk());
    EXPECT_EQ(*result->Wait(), *results[0]->Wait());
  }
  EXPECT_EQ(observer_.computed, 1);
  EXPECT_EQ(observer_.joins, 63);
}

TEST_F(BandCacheTest, EvictsLeastRecentlyUsed) {
  WaitForHolders(Get(Spec("a", {0, 400})), 2);
  WaitForHolders(Get(Spec("b", {0, 400})), 2);
  Get(Spec("a", {0, 10}));
  Get(Spec("c", {0, 400}));
  EXPECT_NE(cache_.Find("a", {0, 10}), nullptr);
  EXPECT_EQ(cache_.Find("b", {0, 10}), nullptr);
  EXPECT_EQ(observer_.evicted, 1);
  EXPECT_EQ(budget_.used(), 3200 + 2 * kEntry);
}

TEST_F(BandCacheTest, BandsInUseCountUntilReleased) {
  BandPtr held = Get(Spec("a", {0, 900}));
  EXPECT_THAT(TryGet(Spec("b", {0, 900})), StatusIs(absl::StatusCode::kResourceExhausted,
                                                    HasSubstr("no room for 3600 more bytes")));
  WaitForHolders(held, 2);
  held.reset();
  Get(Spec("b", {0, 900}));
  EXPECT_EQ(cache_.Find("a", {0, 1}), nullptr);
}

TEST_F(BandCacheTest, EvictsEvictableMemoryWhenNeeded) {
  const Caller caller;
  const auto add = [&] {
    auto idle = std::make_shared<BudgetedBuffer>(*cache_.Allocate(2500, caller));
    const std::weak_ptr<const BudgetedBuffer> owner = idle;
    cache_.AddEvictable(std::move(idle), 2500);
    return owner;
  };
  const auto first = add();
  const auto second = add();
  EXPECT_EQ(cache_.kept_bytes(), 5000);
  WaitForHolders(Get(Spec("a", {0, 400})), 2);
  EXPECT_TRUE(first.expired()) << "longest idle";
  const std::shared_ptr<const BudgetedBuffer> back = second.lock();
  ASSERT_NE(back, nullptr);
  cache_.RemoveEvictable(back.get());
  EXPECT_EQ(cache_.kept_bytes(), 1600 + kEntry);
  EXPECT_THAT(cache_.Reserve(4000, caller), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(budget_.used(), 2500) << "the band is evicted, but its memory is still held";
}

TEST_F(BandCacheTest, OwnerOfHalfGetsNoMoreWhileAnotherWaits) {
  const Caller large("large");
  const Caller small("small");
  const Caller third("third");
  {
    const auto most = *cache_.Reserve(5500, large);
    EXPECT_THAT(cache_.Reserve(400, large), IsOk()) << "no caller waits";
    EXPECT_THAT(cache_.Reserve(1000, large), Not(IsOk()));
    EXPECT_THAT(cache_.Reserve(400, large), IsOk()) << "an owner of half does not wait for itself";
    EXPECT_THAT(cache_.Reserve(1000, small), Not(IsOk()));
    EXPECT_THAT(cache_.Reserve(400, large), StatusIs(absl::StatusCode::kResourceExhausted,
                                                     HasSubstr("its share of the memory")));
    EXPECT_THAT(cache_.Reserve(400, third), IsOk());
  }
  const auto half = *cache_.Reserve(3000, large);
  EXPECT_THAT(cache_.Reserve(1, large), Not(IsOk()));
  EXPECT_THAT(cache_.Reserve(1000, small), IsOk());
}

TEST_F(BandCacheTest, BandIsChargedToItsOwnerUntilEvicted) {
  const auto large = std::make_shared<Caller>("large");
  BandPtr held = *TryGet(Spec("a", {0, 900}), large);
  WaitForHolders(held, 2);
  EXPECT_THAT(cache_.Reserve(3000, Caller("small")), Not(IsOk()));
  EXPECT_THAT(cache_.Reserve(1, *large), Not(IsOk()));
  held.reset();
  EXPECT_THAT(cache_.Reserve(1, *large), Not(IsOk())) << "evicts no band";
  EXPECT_THAT(cache_.Reserve(3000, Caller("small")), IsOk());
  EXPECT_EQ(cache_.Find("a", {0, 1}), nullptr);
  EXPECT_THAT(cache_.Reserve(1, *large), IsOk());
}

TEST_F(BandCacheTest, BandsOfDepartedOwnersDoNotReduceShares) {
  for (int i = 0; i < 10; ++i) {
    const auto gone = std::make_shared<Caller>("gone " + std::to_string(i));
    const std::string key(1, static_cast<char>('a' + i));
    WaitForHolders(*TryGet(Spec(key, {0, 8}), gone), 2);
  }
  const Caller large("large");
  const auto some = *cache_.Reserve(1500, large);
  EXPECT_THAT(cache_.Reserve(5000, Caller("small")), Not(IsOk()));
  EXPECT_THAT(cache_.Reserve(1000, large), IsOk()) << "the owner has less than half";
}

TEST_F(BandCacheTest, OwnerAtItsLimitEvictsItsOwnBands) {
  const QuotaOwner capped = {.name = "capped", .max_bytes = 2000};
  const auto caller = std::make_shared<Caller>(capped);
  const auto other = std::make_shared<Caller>("another");
  for (const auto& [key, maker] : {std::pair("theirs", other), std::pair("ours", caller)}) {
    WaitForHolders(*TryGet(Spec(key, {0, 100}), maker), 2);
  }
  {
    const auto all = cache_.Reserve(2000, *caller);
    EXPECT_THAT(all, IsOk());
    EXPECT_EQ(cache_.Find("ours", {0, 1}), nullptr);
    EXPECT_NE(cache_.Find("theirs", {0, 1}), nullptr);
    // The limit applies to all callers of one owner together.
    const absl::Status refusal = cache_.Reserve(1, Caller(capped)).status();
    EXPECT_THAT(refusal,
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr("this caller has reached its memory limit of 2000 bytes")));
    EXPECT_EQ(ReasonOf(refusal), kCallerLimit);
    EXPECT_THAT(cache_.Reserve(1, *other), IsOk());
  }
  EXPECT_THAT(cache_.Reserve(2001, *caller),
              IsInvalidWith("want at most 2000, this caller's limit"));
  EXPECT_NE(cache_.Find("theirs", {0, 1}), nullptr);
}

TEST_F(BandCacheTest, OwnerAtShareDoesNotStartSharedComputation) {
  const auto large = std::make_shared<Caller>("large");
  const auto most = *cache_.Reserve(4000, *large);
  EXPECT_THAT(cache_.Reserve(2500, Caller("small")), Not(IsOk()));
  EXPECT_THAT(TryGet(Spec("a", {0, 4}), large), Not(IsOk()));
  EXPECT_EQ(observer_.misses, 0) << "there was a computation to join";
  EXPECT_THAT(TryGet(Spec("a", {0, 4}), std::make_shared<Caller>("small")), IsOk());
  EXPECT_THAT(TryGet(Spec("a", {0, 4}), large), IsOk()) << "needs no memory";
}

TEST_F(BandCacheTest, ComputationStopsWhenAllCallersCancel) {
  Gate started;
  Gate gate;
  auto first = std::make_shared<Caller>();
  auto second = std::make_shared<Caller>();
  Result a;
  Result b;
  // The span covers more than the first range.
  BandSpec spec = Spec("a", {0, 4}, &started, &gate);
  ByteBudget budget(int64_t{1} << 30);
  BandCache cache(&budget, &threads_, &observer_);
  spec.span = {0, int64_t{1} << 22};
  threads_.Schedule(first, [&] { cache.Get(spec, first, a.Callback()); });
  started.Wait();
  cache.Get(spec, second, b.Callback());
  first->Cancel();
  cache.DropCancelled();
  EXPECT_THAT(a.Wait(), StatusIs(absl::StatusCode::kCancelled));
  second->Cancel();
  cache.DropCancelled();
  EXPECT_THAT(b.Wait(), StatusIs(absl::StatusCode::kCancelled));
  gate.Open();
  threads_.Join();
  EXPECT_EQ(observer_.computed, 0);
  EXPECT_EQ(budget.used(), 0);
}

TEST_F(BandCacheTest, EvaluatorMemoryCountsWhileItExists) {
  BandSpec spec = Spec("a", {0, 4});
  spec.evaluator_bytes = 1000;
  int64_t used = 0;
  spec.prepare = [&] {
    used = budget_.used();
    return Identity();
  };
  Get(spec);
  EXPECT_EQ(used, 1000 + 4 * 4 + kEntry);
  EXPECT_EQ(budget_.used(), 4 * 4 + kEntry);
}

TEST_F(BandCacheTest, EvaluatorWithoutRoomIsNotPrepared) {
  for (const auto& [bytes, code] : {std::pair(5999, absl::StatusCode::kResourceExhausted),
                                    std::pair(6001, absl::StatusCode::kInvalidArgument)}) {
    BandSpec spec = Spec("a", {0, 4});
    spec.evaluator_bytes = bytes;
    spec.prepare = []() -> EvaluatorPtr {
      ADD_FAILURE() << "prepared";
      return Identity();
    };
    EXPECT_THAT(TryGet(spec), StatusIs(code, HasSubstr("memory budget")));
  }
}

TEST_F(BandCacheTest, ComputationContinuesAfterFirstCallerCancels) {
  Gate started;
  Gate gate;
  auto leader = std::make_shared<Caller>();
  Result a;
  Result b;
  threads_.Schedule(leader, [&] {
    cache_.Get(Spec("a", {0, 64}, &started, &gate), leader, a.Callback());
  });
  started.Wait();
  cache_.Get(Spec("a", {0, 64}), std::make_shared<Caller>(), b.Callback());
  leader->Cancel();
  cache_.DropCancelled();
  EXPECT_THAT(a.Wait(), StatusIs(absl::StatusCode::kCancelled));
  gate.Open();
  EXPECT_THAT(b.Wait(), IsOk());
}

TEST_F(BandCacheTest, ReturnsNullIfNoBandIsKeptOrComputable) {
  BandSpec kept = Spec("a", {0, 4});
  kept.prepare = nullptr;
  EXPECT_EQ(Get(kept), nullptr);
  EXPECT_EQ(observer_.misses, 0);
  const BandPtr band = Get(Spec("a", {-8, 8}));
  EXPECT_EQ(Get(kept), band);
}

TEST_F(BandCacheTest, KeptBandServesIfItCoversWantedSpan) {
  const BandPtr band = Get(Spec("a", {-3, 3}));
  BandSpec wider = Spec("a", {-4, 4});
  wider.wanted = {-2, 2};
  EXPECT_EQ(Get(wider), band);
}

TEST(Widen, CoversSpanStaysInDomainAndIsBounded) {
  const Range domain = {-1000000, 1000000};
  for (int64_t begin : {-5000, -4097, -4096, -1, 0, 1, 63, 64, 65, 99999}) {
    for (int64_t size : {1, 2, 3, 64, 65, 1000, 5001}) {
      const Range span = {begin, begin + size};
      const Range wide = BandCache::Widen(span, domain);
      EXPECT_TRUE(wide.Contains(span));
      EXPECT_TRUE(domain.Contains(wide));
      EXPECT_LE(wide.size(), 4 * size) << begin << " " << size;
    }
  }
  EXPECT_EQ(BandCache::Widen({-4095, 4096}, domain), (Range{-4096, 4096}));
  EXPECT_EQ(BandCache::Widen({0, 1000}, domain), (Range{0, 1024}));
  EXPECT_EQ(BandCache::Widen({0, 1000}, {0, 1001}), (Range{0, 1001}));
}

}  // namespace
}  // namespace attnbias::band_cache_test
