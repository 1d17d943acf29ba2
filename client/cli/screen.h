// SPDX-License-Identifier: Apache-2.0
// Terminals: what they can show, and a line of progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <ostream>

namespace attnbias {

enum class Colors { kNone, k256, k24Bit };

// Size and colours of an output. The defaults are those of a file or a pipe.
struct Screen {
  int columns = 80;
  int lines = 44;
  Colors colors = Colors::kNone;
};

// Returns the colours of a terminal with this environment: none with NO_COLOR
// or a TERM without colours.
Colors ColorsOf(const std::function<const char*(const char*)>& environment);

// Returns the screen that is open as `descriptor`.
Screen ScreenOf(int descriptor);

// A line that shows the progress of a long fetch. Writes nothing for the first
// half second, then ten times a second. The destructor wipes the line.
class ProgressLine {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ProgressLine(std::ostream* out, Clock::time_point now = Clock::now())
      : out_(*out), next_(now + std::chrono::milliseconds(500)) {}
  ~ProgressLine();

  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Update(int64_t bytes_done, int64_t bytes_total, Clock::time_point now = Clock::now());

 private:
  std::ostream& out_;
  Clock::time_point next_;
  bool shown_ = false;
};

}  // namespace attnbias
