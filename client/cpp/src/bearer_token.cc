// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/bearer_token.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/src/small_file.h"

namespace attnbias {
namespace {

constexpr char kTokenVariable[] = "ATTNBIAS_CLIENT_TOKEN";
constexpr char kTokenFileVariable[] = "ATTNBIAS_CLIENT_TOKEN_FILE";

// Where a token comes from; neither is none.
struct Source {
  std::string name;
  std::string path = "";
  std::string token = "";
};

Source SourceFromEnvironment() {
  for (const char* const name : {kTokenFileVariable, kTokenVariable}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    if (name == kTokenFileVariable) return {.name = name, .path = value};
    return {.name = name, .token = value};
  }
  return {};
}

bool SaysWhoCalls(const ClientOptions& options) {
  return absl::c_any_of(options.metadata, [](const auto& pair) {
    return absl::EqualsIgnoreCase(pair.first, "authorization");
  });
}

absl::StatusOr<Source> SourceOf(const ClientOptions& options) {
  const std::string path = options.token_file.value_or("");
  const std::string token = options.token.value_or("");
  if (!path.empty() && !token.empty()) {
    return absl::InvalidArgumentError(
        "token: got one beside token_file, want one of the two");
  }
  if (SaysWhoCalls(options)) {
    if (path.empty() && token.empty()) return Source();
    return absl::InvalidArgumentError(absl::StrCat(
        token.empty() ? "token_file" : "token",
        ": got one beside \"authorization\" in metadata, want one of the two"));
  }
  if (!path.empty()) return Source{.name = "token_file", .path = path};
  if (!token.empty()) return Source{.name = "token", .token = token};
  if (options.token.has_value() || options.token_file.has_value()) {
    return Source();
  }
  return SourceFromEnvironment();
}

bool IsToken(absl::string_view text) {
  return !text.empty() && absl::c_all_of(text, absl::ascii_isgraph);
}

}  // namespace

absl::StatusOr<std::unique_ptr<BearerToken>> BearerToken::From(
    const ClientOptions& options) {
  absl::StatusOr<Source> source = SourceOf(options);
  if (!source.ok()) return source.status();
  if (source->name.empty()) return nullptr;
  std::unique_ptr<BearerToken> made(new BearerToken(source->name));
  if (source->path.empty()) {
    if (!IsToken(source->token)) {
      return absl::InvalidArgumentError(absl::StrCat(
          source->name, ": got text that is no token; want visible characters ",
          "of ASCII, without spaces"));
    }
    made->token_ = std::move(source->token);
    return made;
  }
  made->path_ = std::move(source->path);
  absl::StatusOr<std::string> token = made->ReadFile();
  if (!token.ok()) return token.status();
  made->token_ = *std::move(token);
  return made;
}

std::string BearerToken::Authorization() {
  const std::lock_guard lock(mutex_);
  if (!path_.empty()) {
    if (absl::StatusOr<std::string> token = ReadFile(); token.ok()) {
      token_ = *std::move(token);
    }
  }
  return absl::StrCat("Bearer ", token_);
}

absl::StatusOr<std::string> BearerToken::ReadFile() const {
  const absl::StatusOr<std::string> text = ReadSmallFile(path_, name_);
  if (!text.ok()) return text.status();
  const absl::string_view token = absl::StripAsciiWhitespace(*text);
  if (IsToken(token)) return std::string(token);
  return absl::InvalidArgumentError(absl::StrCat(
      name_, ": got \"", path_, "\", which does not hold a token; want ",
      "visible characters of ASCII, without spaces"));
}

}  // namespace attnbias
