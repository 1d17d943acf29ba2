// SPDX-License-Identifier: Apache-2.0
#include "core/mount/json_file.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"

namespace attnbias {
namespace {

using nlohmann::json;

// An index of a thousand shards has a few megabytes.
constexpr int64_t kMaxBytes = int64_t{64} << 20;
// Values are written and compared by recursion.
constexpr int kMaxDepth = 100;
constexpr size_t kExcerptBytes = 100;

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status =
      std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  }
  if (!std::filesystem::is_regular_file(status)) {
    return Invalid(path, ": not a regular file that can be read");
  }
  const auto size =
      static_cast<int64_t>(std::filesystem::file_size(path, error));
  if (error || size > kMaxBytes) {
    return Invalid(path, ": got ", error ? error.message() : "a large file",
                   ", want at most ", kMaxBytes, " bytes");
  }
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), size)) return Invalid(path, ": cannot be read");
  return text;
}

}  // namespace

absl::StatusOr<json> ReadJsonFile(const std::string& path) {
  ATTNBIAS_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  bool too_deep = false;
  const auto keep = [&too_deep](int depth, json::parse_event_t /*event*/,
                                json& /*value*/) {
    too_deep |= depth > kMaxDepth;
    return depth <= kMaxDepth;
  };
  json content = json::parse(text, keep, /*allow_exceptions=*/false);
  if (too_deep) {
    return Invalid(path, ": nested deeper than ", kMaxDepth, " levels");
  }
  if (content.is_discarded()) return Invalid(path, ": not JSON");
  return content;
}

std::string Excerpt(const json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true,
                                json::error_handler_t::replace);
  if (text.size() <= kExcerptBytes) return text;
  text.resize(kExcerptBytes);
  return text + "...";
}

}  // namespace attnbias
