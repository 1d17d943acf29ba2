// SPDX-License-Identifier: Apache-2.0
#include "attnbias/internal/printable.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace attnbias::internal {
namespace {

constexpr size_t kMostOfExcerpt = 100;

bool IsPrintable(uint32_t point) {
  return point >= 0xa0 &&                         // C1 controls
         (point < 0x200b || point > 0x200f) &&    // widths and directions
         (point < 0x2028 || point > 0x202e) &&    // lines and directions
         (point < 0x2060 || point > 0x206f) &&    // the same
         (point < 0xd800 || point > 0xdfff) &&    // surrogates
         point != 0xfeff && point <= 0x10ffff &&  // byte order mark
         (point < 0xe0000 || point > 0xe0fff);    // tags
}

// Returns the bytes of the printable character at the front of `text`, 0 if
// there is none.
size_t CharacterSize(absl::string_view text) {
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return absl::ascii_isprint(lead) ? 1 : 0;
  const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc0 || lead > 0xf4 || size > text.size()) return 0;
  uint32_t point = lead & (0x7f >> size);
  for (size_t i = 1; i < size; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xc0) != 0x80) return 0;
    point = point << 6 | (byte & 0x3f);
  }
  return point >= kLeast[size] && IsPrintable(point) ? size : 0;
}

}  // namespace

std::string Printable(absl::string_view text) {
  std::string printable;
  while (!text.empty()) {
    const size_t size = CharacterSize(text);
    if (size > 0) {
      absl::StrAppend(&printable, text.substr(0, size));
    } else {
      absl::StrAppend(
          &printable, "\\x",
          absl::Hex(static_cast<unsigned char>(text[0]), absl::kZeroPad2));
    }
    text.remove_prefix(size > 0 ? size : 1);
  }
  return printable;
}

std::string Excerpt(absl::string_view text) {
  return absl::StrCat(Printable(text.substr(0, kMostOfExcerpt)),
                      text.size() > kMostOfExcerpt ? "..." : "");
}

}  // namespace attnbias::internal
