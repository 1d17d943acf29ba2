// SPDX-License-Identifier: Apache-2.0
#include "client/cli/progress_line.h"

#include <string>

#include "absl/strings/str_format.h"

namespace attnbias {
namespace {

constexpr int kBarWidth = 40;
constexpr double kMebibyte = 1 << 20;

}  // namespace

ProgressLine::~ProgressLine() {
  if (shown_) out_ << "\r\033[K" << std::flush;
}

void ProgressLine::Update(int64_t bytes_done, int64_t bytes_total,
                          Clock::time_point now) {
  if (now < next_ || bytes_total <= 0) return;
  next_ = now + std::chrono::milliseconds(100);
  shown_ = true;
  const double share =
      static_cast<double>(bytes_done) / static_cast<double>(bytes_total);
  const auto filled = static_cast<size_t>(share * kBarWidth);
  out_ << absl::StrFormat("\r[%s%s] %3.0f%%  %.0f of %.0f MiB",
                          std::string(filled, '#'),
                          std::string(kBarWidth - filled, ' '), share * 100,
                          static_cast<double>(bytes_done) / kMebibyte,
                          static_cast<double>(bytes_total) / kMebibyte)
       << std::flush;
}

}  // namespace attnbias
