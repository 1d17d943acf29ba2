// SPDX-License-Identifier: Apache-2.0
// Measures the phases of a call.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/container/inlined_vector.h"

namespace attnbias {

enum class Phase : uint8_t {
  kPlan,     // the request is checked, decoded and planned
  kWait,     // the next step is queued
  kCompute,  // the values are looked up or computed, possibly in another call
  kWrite     // gRPC and the client read the response
};
inline constexpr std::array<std::string_view, 4> kPhaseNames = {"plan", "wait", "compute", "write"};
inline constexpr size_t kNumPhases = kPhaseNames.size();

// Time in each phase.
using PhaseTimes = std::array<std::chrono::nanoseconds, kNumPhases>;

// A call is in at most one phase at a time. Not safe for concurrent use.
class PhaseClock {
 public:
  using Clock = std::chrono::steady_clock;

  struct Change {
    Clock::time_point at;
    std::optional<Phase> to;
  };
  // Bounds the memory used by a stream, which changes phase with each message.
  static constexpr size_t kMostChanges = 32;

  // A call begins with planning.
  explicit PhaseClock(Clock::time_point start) : since_(start), changes_{{start, Phase::kPlan}} {}

  void Enter(Phase phase) { Switch(phase); }
  // Leaves all phases while the call waits for the client to send.
  void Leave() { Switch(std::nullopt); }

  // Returns the first changes, up to kMostChanges of them.
  std::span<const Change> changes() const { return changes_; }

  // Returns the time in each phase for a call that ends at `now`.
  PhaseTimes End(Clock::time_point now) {
    Stop(now);
    return spent_;
  }

 private:
  void Switch(std::optional<Phase> next) {
    if (next == phase_) return;
    const Clock::time_point now = Clock::now();
    Stop(now);
    phase_ = next;
    if (changes_.size() < kMostChanges) changes_.push_back({now, next});
  }

  void Stop(Clock::time_point now) {
    if (phase_) spent_[static_cast<size_t>(*phase_)] += now - since_;
    since_ = now;
  }

  std::optional<Phase> phase_ = Phase::kPlan;
  Clock::time_point since_;
  PhaseTimes spent_{};
  absl::InlinedVector<Change, 8> changes_;
};

}  // namespace attnbias
