// SPDX-License-Identifier: Apache-2.0
// A line on a terminal that says how far a long fetch is.
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>

namespace attnbias {

// Writes nothing for the first half second, then ten times a second. The line
// is wiped at the end.
class ProgressLine {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ProgressLine(std::ostream* out, Clock::time_point now = Clock::now())
      : out_(*out), next_(now + std::chrono::milliseconds(500)) {}
  ~ProgressLine();

  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Update(int64_t bytes_done, int64_t bytes_total,
              Clock::time_point now = Clock::now());

 private:
  std::ostream& out_;
  Clock::time_point next_;
  bool shown_ = false;
};

}  // namespace attnbias
