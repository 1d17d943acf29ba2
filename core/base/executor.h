// SPDX-License-Identifier: Apache-2.0
// Runs core's work for the callers that want its results. Core starts no threads: its embedder
// implements Executor.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnbias {

// A client, which is charged for the time and memory that all its calls use.
struct QuotaOwner {
  std::string name;
  // Maximum number of bytes that all its calls may hold together.
  int64_t max_bytes = std::numeric_limits<int64_t>::max();
};

// A call that waits for a result. Long computations poll cancelled().
class Caller {
 public:
  explicit Caller(std::string owner = "") : owner_{std::move(owner)} {}
  explicit Caller(QuotaOwner owner) : owner_(std::move(owner)) {}
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  const QuotaOwner& owner() const { return owner_; }

  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  // Adds to the time that threads have spent on this call.
  void Use(std::chrono::nanoseconds time) { used_ += time.count(); }
  std::chrono::nanoseconds used() const { return std::chrono::nanoseconds(used_); }

 private:
  const QuotaOwner owner_;
  std::atomic<bool> cancelled_{false};
  std::atomic<int64_t> used_{0};
};

using CallerPtr = std::shared_ptr<Caller>;

class Executor {
 public:
  using Task = absl::AnyInvocable<void()>;

  virtual ~Executor() = default;

  // Runs `task` soon on some thread, never inside this call.
  //
  // A task takes milliseconds; longer work continues in another task, so that clients take turns.
  virtual void Schedule(CallerPtr caller, Task task) = 0;

  // Schedules longer, non-preemptible work, which runs on separate threads and therefore does not
  // delay other tasks.
  virtual void ScheduleBlocking(CallerPtr caller, Task task) = 0;

  // Called periodically by ScheduleBlocking tasks, with no lock held. May wait while other such
  // tasks run.
  virtual void Yield() {}

  // Returns the number of threads that run tasks; at least 1.
  virtual int num_threads() const = 0;
};

// Marks this thread as working for `caller`, which may cancel and must outlive this object.
class ComputeScope {
 public:
  ComputeScope(const Caller* caller, Executor* executor) {
    caller_ = caller;
    executor_ = executor;
  }
  ComputeScope(const ComputeScope&) = delete;
  ComputeScope& operator=(const ComputeScope&) = delete;
  ~ComputeScope() { caller_ = nullptr; }

  // Called in long loops, with no lock held. Yields to other work. Returns false if the caller has
  // cancelled. The loop should then end early, since its result will be discarded.
  static bool Continues() {
    if (caller_ == nullptr) return true;
    if (!caller_->cancelled()) executor_->Yield();
    return !caller_->cancelled();
  }

 private:
  inline static thread_local const Caller* caller_ = nullptr;
  inline static thread_local Executor* executor_ = nullptr;
};

// Passed to ForRanges as `unit` if an item takes longer than a time slice.
inline constexpr int64_t kNonPreemptible = 0;

// Calls `body(begin, end)` with ranges that cover [0, count), then `done` once, with OK or the
// first error. The error is one that `body` returned, or CANCELLED if the caller has cancelled. No
// further range begins after an error.
//
// Begins on the calling thread, which must be an executor thread, and may end there. The first
// range is one `unit`; the duration of earlier ranges determines the size of later ones. After a
// time slice of a few milliseconds the thread switches to other work and the remaining ranges are
// scheduled again; idle threads join in.
//
// If `unit` is kNonPreemptible, `body` is called once for all items, in the same way as RunBlocking
// calls `make`.
void ForRanges(Executor& executor, CallerPtr caller, int64_t count, int64_t unit,
               absl::AnyInvocable<absl::Status(int64_t, int64_t) const> body,
               absl::AnyInvocable<void(absl::Status)> done);

// Calls `use` with the result of `make`, a value or a Status, or with CANCELLED if the caller has
// cancelled. If `takes_long`, `make` runs in a ComputeScope on threads for non-preemptible work,
// and `use` runs in another task, after `make` is destroyed; otherwise both run inside this call.
template <typename Make, typename Use>
void RunBlocking(Executor& executor, const CallerPtr& caller, bool takes_long, Make make, Use use) {
  using Result = decltype(make());
  using Made =
      std::conditional_t<std::is_same_v<Result, absl::Status>, Result, absl::StatusOr<Result>>;
  if (!takes_long) return use(Made(make()));
  executor.ScheduleBlocking(
      caller, [&executor, caller, make = std::move(make), use = std::move(use)]() mutable {
        const absl::Status cancelled = absl::CancelledError("every caller has canceled");
        Made made = cancelled;
        {
          const ComputeScope scope(caller.get(), &executor);
          Make last_use = std::move(make);
          if (!caller->cancelled()) made = last_use();
        }
        if (caller->cancelled()) made = cancelled;
        executor.Schedule(caller, [made = std::move(made), use = std::move(use)]() mutable {
          use(std::move(made));
        });
      });
}

}  // namespace attnbias
