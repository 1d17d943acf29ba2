// SPDX-License-Identifier: Apache-2.0
#include "client/cli/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace attnbias {
namespace {

constexpr int kProgressWidth = 40;
constexpr double kMebibyte = 1 << 20;

}  // namespace

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
  return depth == "truecolor" || depth == "24bit" ? Colors::k24Bit : Colors::k256;
}

Screen ScreenOf(int descriptor) {
  Screen screen;
  if (isatty(descriptor) != 1) return screen;
  screen.colors = ColorsOf([](const char* name) { return std::getenv(name); });
  winsize size;
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    screen.columns = size.ws_col;
    screen.lines = size.ws_row;
  }
  return screen;
}

ProgressLine::~ProgressLine() {
  if (shown_) out_ << "\r\033[K" << std::flush;
}

void ProgressLine::Update(int64_t bytes_done, int64_t bytes_total, Clock::time_point now) {
  if (now < next_ || bytes_total <= 0) return;
  next_ = now + std::chrono::milliseconds(100);
  shown_ = true;
  const double share = static_cast<double>(bytes_done) / static_cast<double>(bytes_total);
  const auto filled = static_cast<size_t>(share * kProgressWidth);
  out_ << absl::StrFormat("\r[%s%s] %3.0f%%  %.0f of %.0f MiB", std::string(filled, '#'),
                          std::string(kProgressWidth - filled, ' '), share * 100,
                          static_cast<double>(bytes_done) / kMebibyte,
                          static_cast<double>(bytes_total) / kMebibyte)
       << std::flush;
}

}  // namespace attnbias
