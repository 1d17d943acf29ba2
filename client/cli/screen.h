// SPDX-License-Identifier: Apache-2.0
// What the standard output can show.
#pragma once

#include <functional>

namespace attnbias {

enum class Colors { kNone, k256, k24Bit };

// The default is that of a file or a pipe.
struct Screen {
  int columns = 80;
  int lines = 44;
  Colors colors = Colors::kNone;
};

// Of a terminal whose environment this is: none with NO_COLOR or a TERM that
// has none.
Colors ColorsOf(const std::function<const char*(const char*)>& environment);

// Of what is open as `descriptor`.
Screen ScreenOf(int descriptor);

}  // namespace attnbias
