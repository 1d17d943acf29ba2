// SPDX-License-Identifier: Apache-2.0
#include "core/base/executor.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "core/base/mutex.h"

namespace attnbias {
namespace {

using Clock = std::chrono::steady_clock;

// Time slice after which a thread switches to other work.
constexpr Clock::duration kTimeSlice = std::chrono::milliseconds(2);
// Target duration of a range: short compared with a time slice, long compared with a clock reading.
constexpr Clock::duration kRange = std::chrono::microseconds(400);
// Maximum ratio of a range's size to the previous range's size.
constexpr int64_t kGrowth = 8;

struct Items {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};

// State of one ForRanges call, shared by the participating threads.
class Loop : public std::enable_shared_from_this<Loop> {
 public:
  Loop(Executor& executor, CallerPtr caller, int64_t count, int64_t unit,
       absl::AnyInvocable<absl::Status(int64_t, int64_t) const> body,
       absl::AnyInvocable<void(absl::Status)> done)
      : executor_(executor),
        caller_(std::move(caller)),
        count_(count),
        unit_(unit),
        body_(std::move(body)),
        done_(std::move(done)),
        size_(unit) {}

  // Works until all ranges have started or a time slice ends.
  void RunTimeSlice() {
    const Clock::time_point slice_ends = Clock::now() + kTimeSlice;
    Clock::time_point now = slice_ends - kTimeSlice;
    for (Items items = Take(); items.size() > 0; items = Take()) {
      const absl::Status status = body_(items.begin, items.end);
      const Clock::time_point began = std::exchange(now, Clock::now());
      Finish(items, status, now - began);
      if (now < slice_ends || !HasMore()) continue;
      return ScheduleTurn();
    }
    EndIfFinished();
  }

 private:
  bool HasMore() {
    MutexLock lock(mutex_);
    return status_.ok() && begun_ < count_;
  }

  Items Take() {
    MutexLock lock(mutex_);
    if (caller_->cancelled()) {
      status_.Update(absl::CancelledError("every caller has canceled"));
    }
    if (!status_.ok() || begun_ == count_) return {};
    const int64_t begin = begun_;
    begun_ = std::min(begun_ + size_, count_);
    ++under_way_;
    return {begin, begun_};
  }

  void Finish(Items items, const absl::Status& status, Clock::duration took) {
    bool call_helper = false;
    {
      MutexLock lock(mutex_);
      --under_way_;
      status_.Update(status);
      const auto fits =
          static_cast<int64_t>(static_cast<double>(items.size() / unit_) *
                               (static_cast<double>(kRange.count()) /
                                static_cast<double>(std::max<Clock::rep>(took.count(), 1))));
      size_ = std::clamp<int64_t>(fits * unit_, unit_, std::max(unit_, kGrowth * items.size()));
      // Wakes another thread only if work remains for it. Each thread wakes the next.
      const int64_t ranges = (count_ - begun_) / size_;
      call_helper = num_workers_ < executor_.num_threads() && ranges >= 4 * num_workers_;
      if (call_helper) ++num_workers_;
    }
    if (call_helper) ScheduleTurn();
  }

  void ScheduleTurn() {
    executor_.Schedule(caller_, [self = shared_from_this()] { self->RunTimeSlice(); });
  }

  void EndIfFinished() {
    absl::Status status;
    {
      MutexLock lock(mutex_);
      const bool finished = under_way_ == 0 && (begun_ == count_ || !status_.ok());
      if (!finished || std::exchange(ended_, true)) return;
      status = status_;
    }
    // Frees the captures now, since this object may outlive the loop.
    body_ = nullptr;
    std::exchange(done_, nullptr)(status);
  }

  Executor& executor_;
  const CallerPtr caller_;
  const int64_t count_;
  const int64_t unit_;
  // Not called after the loop has ended.
  absl::AnyInvocable<absl::Status(int64_t, int64_t) const> body_;
  absl::AnyInvocable<void(absl::Status)> done_;

  Mutex mutex_;
  int64_t size_ ABSL_GUARDED_BY(mutex_);
  int64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  // Number of threads that participate or have been woken.
  int64_t num_workers_ ABSL_GUARDED_BY(mutex_) = 1;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void ForRanges(Executor& executor, CallerPtr caller, int64_t count, int64_t unit,
               absl::AnyInvocable<absl::Status(int64_t, int64_t) const> body,
               absl::AnyInvocable<void(absl::Status)> done) {
  if (unit == kNonPreemptible) {
    return RunBlocking(
        executor, caller, /*takes_long=*/true,
        [count, body = std::move(body)] { return body(0, count); }, std::move(done));
  }
  std::make_shared<Loop>(executor, std::move(caller), count, unit, std::move(body), std::move(done))
      ->RunTimeSlice();
}

}  // namespace attnbias
