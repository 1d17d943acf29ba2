// SPDX-License-Identifier: Apache-2.0
#include "server/access/tokens.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/errors.h"
#include "core/base/sha256.h"

namespace attnbias {
namespace {

constexpr char kSyntax[] = "want NAME sha256:DIGEST";

struct TokenLine {
  std::string name;
  std::string digest;
};

bool IsDigest(absl::string_view text) {
  return text.size() == 64 && std::ranges::all_of(text, [](char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

// What a line has is a secret where it should be a digest: it is not repeated.
absl::StatusOr<TokenLine> ParseLine(absl::string_view text) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words.size() != 2) {
    return Invalid("got ", words.size(), " words, ", kSyntax);
  }
  const std::string name(words[0]);
  if (!IsCallerName(name)) {
    return Invalid("got the name '", Shortened(absl::CEscape(name)),
                   "', want 1 to 128 printable ASCII characters");
  }
  absl::string_view digest = words[1];
  if (!absl::ConsumePrefix(&digest, "sha256:") || !IsDigest(digest)) {
    return Invalid("the token of ", name,
                   " is not given by its digest, want sha256: and 64 lowercase "
                   "hexadecimal digits");
  }
  return TokenLine{name, std::string(digest)};
}

}  // namespace

bool IsCallerName(std::string_view name) {
  return !name.empty() && name.size() <= 128 &&
         std::ranges::all_of(name, absl::ascii_isgraph);
}

absl::StatusOr<Tokens> Tokens::Parse(const std::string& path,
                                     std::string_view content) {
  Tokens tokens;
  int number = 0;
  for (absl::string_view text : absl::StrSplit(
           absl::string_view(content.data(), content.size()), '\n')) {
    ++number;
    text = absl::StripAsciiWhitespace(text);
    if (text.empty() || text.front() == '#') continue;
    const std::string place = absl::StrCat(path, ": line ", number);
    absl::StatusOr<TokenLine> line = ParseLine(text);
    if (!line.ok()) return Located(place, line.status());
    const auto [entry, added] =
        tokens.names_by_digest_.emplace(line->digest, line->name);
    if (!added && entry->second != line->name) {
      return Invalid(place, ": ", line->name, " has the token of ",
                     entry->second, ", want a token for each name");
    }
  }
  // A file that was emptied by mistake would lock every caller out.
  if (tokens.names_by_digest_.empty()) {
    return Invalid(path,
                   ": got no token, want at least one line NAME "
                   "sha256:DIGEST");
  }
  return tokens;
}

const std::string* Tokens::NameOf(std::string_view token) const {
  const auto found = names_by_digest_.find(Sha256Hex(token));
  return found == names_by_digest_.end() ? nullptr : &found->second;
}

}  // namespace attnbias
