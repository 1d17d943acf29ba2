// SPDX-License-Identifier: Apache-2.0
#include "attnbias/internal/printable.h"

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace attnbias::internal {
namespace {

constexpr size_t kMostOfExcerpt = 100;

}  // namespace

std::string Printable(absl::string_view text) {
  std::string printable;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isprint(byte)) {
      printable.push_back(c);
    } else {
      absl::StrAppend(&printable, "\\x", absl::Hex(byte, absl::kZeroPad2));
    }
  }
  return printable;
}

std::string Excerpt(absl::string_view text) {
  return absl::StrCat(Printable(text.substr(0, kMostOfExcerpt)),
                      text.size() > kMostOfExcerpt ? "..." : "");
}

}  // namespace attnbias::internal
