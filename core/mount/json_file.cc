// SPDX-License-Identifier: Apache-2.0
#include "core/mount/json_file.h"

#include <algorithm>
#include <cstdint>

#include "core/base/errors.h"
#include "core/file/regular_file.h"

namespace attnbias {
namespace {

using nlohmann::json;

// An index of a thousand shards has a few megabytes.
constexpr int64_t kMaxBytes = int64_t{64} << 20;
// Values are written and compared by recursion.
constexpr int kMaxDepth = 100;
constexpr size_t kExcerptBytes = 100;

// Returns the deepest nesting in `text` if it is JSON.
int DepthOf(const std::string& text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') in_string = !in_string;
    if (c == '\\') ++i;
    if (in_string) continue;
    if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if (c == ']' || c == '}') --depth;
  }
  return deepest;
}

}  // namespace

absl::StatusOr<json> ParseJson(const std::string& path, const std::string& text) {
  // Not by a callback of the parser, which would scan all members of an object after each.
  if (DepthOf(text) > kMaxDepth) {
    return Invalid(path, ": nested deeper than ", kMaxDepth, " levels");
  }
  json content = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (content.is_discarded()) return Invalid(path, ": not JSON");
  return content;
}

absl::StatusOr<json> ReadJsonFile(const std::string& path, const std::string& folder) {
  ATTNBIAS_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, kMaxBytes, folder));
  return ParseJson(path, text);
}

std::string Excerpt(const json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  if (text.size() <= kExcerptBytes) return text;
  text.resize(kExcerptBytes);
  return text + "...";
}

}  // namespace attnbias
