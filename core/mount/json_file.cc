// SPDX-License-Identifier: Apache-2.0
#include "core/mount/json_file.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
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

// Python reads no integer of more digits.
constexpr size_t kMaxPythonDigits = 4300;

// The length of the string that `text` begins with, quotes and all.
size_t StringLength(std::string_view text) {
  size_t end = 1;
  while (end < text.size() && text[end] != '"') {
    end += text[end] == '\\' ? 2 : 1;
  }
  return std::min(end + 1, text.size());
}

// The length of the decimal digits that `text` begins with.
size_t DigitsLength(std::string_view text) {
  const auto* const end = std::ranges::find_if_not(text, absl::ascii_isdigit);
  return static_cast<size_t>(end - text.begin());
}

// The length of the JSON number that `text` begins with; 0 if there is none.
size_t NumberLength(std::string_view text) {
  size_t end = text.starts_with('-') ? 1 : 0;
  const size_t digits = DigitsLength(text.substr(end));
  if (digits == 0 || (digits > 1 && text[end] == '0')) return 0;
  end += digits;
  const bool is_integer =
      end == text.size() ||
      std::string_view(".eE").find(text[end]) == std::string_view::npos;
  if (is_integer) return digits > kMaxPythonDigits ? 0 : end;
  if (text[end] == '.') {
    const size_t fraction = DigitsLength(text.substr(end + 1));
    if (fraction == 0) return 0;
    end += 1 + fraction;
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    const std::string_view rest = text.substr(end + 1);
    const size_t sign = rest.starts_with('+') || rest.starts_with('-') ? 1 : 0;
    const size_t exponent = DigitsLength(rest.substr(sign));
    if (exponent == 0) return 0;
    end += 1 + sign + exponent;
  }
  return end;
}

// The length of the number that `text` begins with, if it is one that Python
// takes and JSON's parser does not: it is not finite. 0 otherwise.
size_t NonFiniteLength(std::string_view text) {
  for (const std::string_view name : {"NaN", "Infinity", "-Infinity"}) {
    if (text.starts_with(name)) return name.size();
  }
  const size_t length = NumberLength(text);
  double value = 0;
  const bool is_infinite =
      length > 0 &&
      absl::SimpleAtod(absl::string_view(text.data(), length), &value) &&
      std::isinf(value);
  return is_infinite ? length : 0;
}

// `text` with numbers that are not finite in quotes, unless they stand where
// only a string may.
std::string WithNonFiniteQuoted(std::string_view text) {
  std::string quoted;
  while (!text.empty()) {
    const size_t non_finite = NonFiniteLength(text);
    // Digits that are no number are passed over at once, not read again from
    // each of them on.
    size_t length = std::max<size_t>(
        {1, non_finite, NumberLength(text), DigitsLength(text)});
    if (text.front() == '"') length = StringLength(text);
    const std::string_view token = text.substr(0, length);
    text.remove_prefix(length);
    const size_t next =
        std::min(text.find_first_not_of(" \t\n\r"), text.size());
    const bool is_key = text.substr(next).starts_with(':');
    const std::string_view quote = non_finite > 0 && !is_key ? "\"" : "";
    quoted.append(quote).append(token).append(quote);
  }
  return quoted;
}

}  // namespace

absl::StatusOr<json> ParseJson(const std::string& path,
                               const std::string& text) {
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

absl::StatusOr<json> ReadJsonFile(const std::string& path,
                                  const std::string& folder) {
  ATTNBIAS_ASSIGN_OR_RETURN(const std::string text,
                            ReadRegularFile(path, kMaxBytes, folder));
  return ParseJson(path, text);
}

absl::StatusOr<json> ReadPythonJsonFile(const std::string& path,
                                        const std::string& folder) {
  ATTNBIAS_ASSIGN_OR_RETURN(const std::string text,
                            ReadRegularFile(path, kMaxBytes, folder));
  if (text.starts_with("\xEF\xBB\xBF")) {
    return Invalid(path, ": not JSON: it begins with a byte order mark");
  }
  return ParseJson(path, WithNonFiniteQuoted(text));
}

std::string Excerpt(const json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true,
                                json::error_handler_t::replace);
  if (text.size() <= kExcerptBytes) return text;
  text.resize(kExcerptBytes);
  return text + "...";
}

}  // namespace attnbias
