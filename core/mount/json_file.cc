// SPDX-License-Identifier: Apache-2.0
#include "core/mount/json_file.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/errors.h"
#include "core/file/regular_file.h"

namespace attnbias {
namespace {

using nlohmann::json;

// An index with a thousand shards takes a few megabytes.
constexpr int64_t kMaxBytes = int64_t{64} << 20;
// Values are written and compared recursively.
constexpr int kMaxDepth = 100;
constexpr size_t kExcerptBytes = 100;
// Maximum number of digits in an integer that Python parses.
constexpr size_t kMaxPythonDigits = 4300;

// Returns the length of the string that `text` begins with, including quotes.
size_t StringLength(absl::string_view text) {
  size_t end = 1;
  while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size());
}

// Returns whether Python reads `word` as a number that is not finite.
bool IsNonFinite(absl::string_view word) {
  if (word == "NaN" || word == "Infinity" || word == "-Infinity") return true;
  double value = 0;
  if (!absl::SimpleAtod(word, &value) || !std::isinf(value)) return false;
  const absl::string_view mantissa = word.substr(0, word.find_first_of("eE"));
  const bool is_integer = mantissa == word && !absl::StrContains(word, '.');
  // With a small exponent the number is finite, and is valid JSON if its mantissa is.
  return json::accept(absl::StrCat(mantissa, "e-", kMaxBytes)) &&
         !(is_integer && absl::StripPrefix(word, "-").size() > kMaxPythonDigits);
}

bool IsOfWord(char c) { return absl::ascii_isalnum(c) || c == '-' || c == '+' || c == '.'; }

// Returns `text` with non-finite numbers quoted, unless they are keys.
std::string WithNonFiniteQuoted(absl::string_view text) {
  std::string quoted;
  while (!text.empty()) {
    const auto* const end = std::ranges::find_if_not(text, IsOfWord);
    const size_t length = text.front() == '"'
                              ? StringLength(text)
                              : std::max<size_t>(1, static_cast<size_t>(end - text.begin()));
    const absl::string_view token = text.substr(0, length);
    text.remove_prefix(length);
    const bool is_quoted =
        IsNonFinite(token) && !absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), ":");
    const absl::string_view quote = is_quoted ? "\"" : "";
    absl::StrAppend(&quoted, quote, token, quote);
  }
  return quoted;
}

// Returns the number of levels below the outermost value in `text`, if `text` is JSON.
int DepthOf(const std::string& text) {
  int depth = -1;
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
  // Not done in a parser callback, which would scan all members of an object after each one.
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

absl::StatusOr<json> ReadPythonJsonFile(const std::string& path, const std::string& folder) {
  ATTNBIAS_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, kMaxBytes, folder));
  if (text.starts_with("\xEF\xBB\xBF")) {
    return Invalid(path, ": not JSON: it begins with a byte order mark");
  }
  return ParseJson(path, WithNonFiniteQuoted(text));
}

std::string Excerpt(const json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  if (text.size() <= kExcerptBytes) return text;
  text.resize(kExcerptBytes);
  return text + "...";
}

}  // namespace attnbias
