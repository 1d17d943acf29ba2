// SPDX-License-Identifier: Apache-2.0
#include "server/trace_context.h"

#include <cstddef>

#include "absl/algorithm/container.h"

namespace attnbias {
namespace {

constexpr size_t kSize = 55;

bool IsHex(std::string_view text) {
  return absl::c_all_of(text, [](char c) {
    return ('0' <= c && c <= '9') || ('a' <= c && c <= 'f');
  });
}

bool IsId(std::string_view text) {
  return IsHex(text) && absl::c_any_of(text, [](char c) { return c != '0'; });
}

}  // namespace

std::string_view ParseTraceParent(std::string_view text) {
  if (text.size() < kSize) return "";
  const std::string_view version = text.substr(0, 2);
  const std::string_view known = text.substr(0, kSize);
  // A later version may have more fields.
  const bool ends =
      text.size() == kSize || (version != "00" && text[kSize] == '-');
  const bool valid = ends && IsHex(version) && version != "ff" &&
                     text[2] == '-' && IsId(text.substr(3, 32)) &&
                     text[35] == '-' && IsId(text.substr(36, 16)) &&
                     text[52] == '-' && IsHex(text.substr(53, 2));
  return valid ? known : "";
}

}  // namespace attnbias
