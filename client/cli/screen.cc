// SPDX-License-Identifier: Apache-2.0
#include "client/cli/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/string_view.h"

namespace attnbias {

Colors ColorsOf(const std::function<const char*(const char*)>& environment) {
  const auto value = [&](const char* name) {
    const char* text = environment(name);
    return text == nullptr ? absl::string_view() : absl::string_view(text);
  };
  const absl::string_view term = value("TERM");
  if (!value("NO_COLOR").empty() || term.empty() || term == "dumb") {
    return Colors::kNone;
  }
  const absl::string_view depth = value("COLORTERM");
  return depth == "truecolor" || depth == "24bit" ? Colors::k24Bit
                                                  : Colors::k256;
}

Screen ScreenOf(int descriptor) {
  Screen screen;
  if (isatty(descriptor) != 1) return screen;
  screen.colors = ColorsOf([](const char* name) { return std::getenv(name); });
  winsize size;
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 &&
      size.ws_row > 0) {
    screen.columns = size.ws_col;
    screen.lines = size.ws_row;
  }
  return screen;
}

}  // namespace attnbias
