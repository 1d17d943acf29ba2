// SPDX-License-Identifier: Apache-2.0
#include "core/mount/json_file.h"

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

}  // namespace

absl::StatusOr<json> ParseJson(const std::string& path, const std::string& text) {
  bool too_deep = false;
  const auto keep = [&too_deep](int depth, json::parse_event_t /*event*/, json& /*value*/) {
    too_deep |= depth > kMaxDepth;
    return depth <= kMaxDepth;
  };
  json content = json::parse(text, keep, /*allow_exceptions=*/false);
  if (too_deep) return Invalid(path, ": nested deeper than ", kMaxDepth, " levels");
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
