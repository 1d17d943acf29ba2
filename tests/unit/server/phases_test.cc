// SPDX-License-Identifier: Apache-2.0
#include "server/observe/phases.h"

#include <chrono>
#include <numeric>

#include "gtest/gtest.h"

namespace attnbias::phases_test {
namespace {

using Clock = PhaseClock::Clock;

using std::chrono::nanoseconds;
using std::chrono::seconds;

nanoseconds Of(const PhaseTimes& times, Phase phase) {
  return times[static_cast<size_t>(phase)];
}

nanoseconds Sum(const PhaseTimes& times) {
  return std::accumulate(times.begin(), times.end(), nanoseconds(0));
}

TEST(PhaseClock, BeginsWithPlanning) {
  const Clock::time_point start = Clock::now();
  PhaseClock clock(start);
  const PhaseTimes times = clock.End(start + seconds(2));
  EXPECT_EQ(times, PhaseTimes{seconds(2)});
}

TEST(PhaseClock, DividesAllTimeAmongThePhases) {
  const Clock::time_point start = Clock::now() - seconds(1);
  PhaseClock clock(start);
  for (const Phase phase : {Phase::kWait, Phase::kPlan, Phase::kCompute,
                            Phase::kWait, Phase::kWrite}) {
    clock.Enter(phase);
  }
  const Clock::time_point entered = Clock::now();
  const Clock::time_point end = entered + seconds(3);
  const PhaseTimes times = clock.End(end);
  EXPECT_EQ(Sum(times), end - start);
  EXPECT_GE(Of(times, Phase::kPlan), seconds(1));
  EXPECT_GE(Of(times, Phase::kWrite), seconds(3));
  EXPECT_GT(Of(times, Phase::kWait), seconds(0));
  EXPECT_GT(Of(times, Phase::kCompute), seconds(0));
}

TEST(PhaseClock, GoesOnWhereAPhaseIsEnteredAgain) {
  const Clock::time_point start = Clock::now() - seconds(1);
  PhaseClock clock(start);
  clock.Enter(Phase::kPlan);
  EXPECT_EQ(clock.End(start + seconds(5)), PhaseTimes{seconds(5)});
}

TEST(PhaseClock, LeavesOutTheClientsTime) {
  const Clock::time_point start = Clock::now();
  PhaseClock clock(start);
  clock.Leave();
  const Clock::time_point left = Clock::now();
  const PhaseTimes times = clock.End(left + std::chrono::hours(1));
  EXPECT_LE(Of(times, Phase::kPlan), left - start);
  EXPECT_EQ(Sum(times), Of(times, Phase::kPlan));
}

TEST(PhaseClock, KeepsTheFirstChanges) {
  const Clock::time_point start = Clock::now();
  PhaseClock clock(start);
  clock.Enter(Phase::kPlan);  // no change
  clock.Enter(Phase::kWait);
  clock.Leave();
  ASSERT_EQ(clock.changes().size(), 3U);
  EXPECT_EQ(clock.changes()[0].at, start);
  EXPECT_EQ(clock.changes()[0].to, Phase::kPlan);
  EXPECT_EQ(clock.changes()[1].to, Phase::kWait);
  EXPECT_EQ(clock.changes()[2].to, std::nullopt);
  for (int i = 0; i < 100; ++i) {
    clock.Enter(Phase::kCompute);
    clock.Enter(Phase::kWrite);
  }
  EXPECT_EQ(clock.changes().size(), PhaseClock::kMostChanges);
  EXPECT_EQ(clock.changes()[3].to, Phase::kCompute);
}

}  // namespace
}  // namespace attnbias::phases_test
