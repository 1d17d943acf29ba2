// SPDX-License-Identifier: Apache-2.0
// Spreads what is sent over time.
#ifndef ATTNBIAS_SERVER_ACCESS_PACER_H_
#define ATTNBIAS_SERVER_ACCESS_PACER_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "core/base/mutex.h"

namespace attnbias {

// Whoever sends asks when it may, and sends then. What was not used is not
// saved up. Safe for any number of threads.
class Pacer {
 public:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;

  // When `bytes` may go out at this rate; those of the next come after them.
  Clock::time_point Take(int64_t bytes, double bytes_per_second) {
    const Seconds takes(static_cast<double>(bytes) / bytes_per_second);
    MutexLock lock(mutex_);
    const Clock::time_point begin = std::max(free_from_, Clock::now());
    // A tensor of any size at any rate: no time that the clock does not have.
    free_from_ = begin + std::chrono::duration_cast<Clock::duration>(
                             std::min<Seconds>(takes, std::chrono::hours(24)));
    return begin;
  }

  // How long it would be until the next bytes may go out.
  Clock::duration Backlog() const {
    MutexLock lock(mutex_);
    return std::max(free_from_ - Clock::now(), Clock::duration::zero());
  }

 private:
  mutable Mutex mutex_;
  Clock::time_point free_from_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_ACCESS_PACER_H_
