// SPDX-License-Identifier: Apache-2.0
#include "server/access/policy.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "access/policy.pb.h"
#include "core/base/digest.h"
#include "core/base/errors.h"
#include "core/mount/json_file.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"

namespace attnbias {
namespace {

constexpr char kSyntax[] = "want NAME sha256:DIGEST";

struct TokenLine {
  std::string name;
  std::string digest;
};

// Returns whether `name` is 1 to 128 printable ASCII characters without spaces.
bool IsCallerName(std::string_view name) {
  return !name.empty() && name.size() <= 128 && std::ranges::all_of(name, absl::ascii_isgraph);
}

bool IsDigest(absl::string_view text) {
  return text.size() == 64 && std::ranges::all_of(text, [](char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

// Errors do not repeat the second word: it may be a secret instead of a digest.
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
                   " is not a digest, want sha256: followed by 64 "
                   "lowercase hexadecimal digits");
  }
  return TokenLine{name, std::string(digest)};
}

}  // namespace

absl::StatusOr<Tokens> Tokens::Parse(const std::string& path, std::string_view content) {
  Tokens tokens;
  int number = 0;
  for (absl::string_view text :
       absl::StrSplit(absl::string_view(content.data(), content.size()), '\n')) {
    ++number;
    text = absl::StripAsciiWhitespace(text);
    if (text.empty() || text.front() == '#') continue;
    const std::string place = absl::StrCat(path, ": line ", number);
    absl::StatusOr<TokenLine> line = ParseLine(text);
    if (!line.ok()) return Located(place, line.status());
    const auto [entry, added] = tokens.names_by_digest_.emplace(line->digest, line->name);
    if (!added && entry->second != line->name) {
      return Invalid(place, ": ", line->name, " has the same token as ", entry->second,
                     ", want a different token for each name");
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

namespace {

constexpr char kOthers[] = "*";

std::string PlaceOf(const std::string& path, const std::string& caller) {
  return absl::StrCat(path, ": callers.", Shortened(absl::CEscape(caller)));
}

// Reads a message from JSON. Errors begin with `place`.
absl::Status ReadMessage(const std::string& place, const std::string& json,
                         google::protobuf::Message* message) {
  const auto parsed = google::protobuf::util::JsonStringToMessage(json, message);
  if (parsed.ok()) return absl::OkStatus();
  std::string words(parsed.message());
  // Newer versions of Protobuf add spaces at random.
  absl::RemoveExtraAsciiWhitespace(&words);
  return Invalid(place, ": ", words);
}

// Returns the error in the first invalid entry with the caller's name, which protobuf does not
// report. OK if the error is elsewhere.
absl::Status CheckEntries(const std::string& path, const std::string& content) {
  const absl::StatusOr<nlohmann::json> file = ParseJson(path, content);
  if (!file.ok()) return absl::OkStatus();
  const auto callers = file->find("callers");
  if (callers == file->end() || !callers->is_object()) return absl::OkStatus();
  for (const auto& [name, entry] : callers->items()) {
    access::PolicyFile::Rights rights;
    ATTNBIAS_RETURN_IF_ERROR(ReadMessage(PlaceOf(path, name), entry.dump(), &rights));
  }
  return absl::OkStatus();
}

absl::Status AddMethod(const std::string& name, Rights* rights) {
  bool known = name == "*";
  for (int i = 0; i < kNumMethods; ++i) {
    const auto method = static_cast<Method>(i);
    if (name != "*" && name != NameOf(method)) continue;
    rights->methods.set(i);
    known = true;
  }
  if (known) return absl::OkStatus();
  return Invalid("methods: got '", Shortened(absl::CEscape(name)),
                 "', want a method, such as GetTensor, or *");
}

absl::StatusOr<Rights> RightsOf(const access::PolicyFile::Rights& file) {
  Rights rights;
  for (const std::string& method : file.methods()) {
    ATTNBIAS_RETURN_IF_ERROR(AddMethod(method, &rights));
  }
  rights.table_prefixes.assign(file.tables().begin(), file.tables().end());
  if (file.has_memory_share()) {
    rights.memory_share = file.memory_share();
    if (!(rights.memory_share > 0 && rights.memory_share <= 1)) {
      return Invalid("memory_share: got ", rights.memory_share,
                     ", want a number above 0 and at most 1");
    }
  }
  if (file.has_concurrent_calls()) {
    rights.concurrent_calls = file.concurrent_calls();
    if (rights.concurrent_calls < 1) {
      return Invalid("concurrent_calls: got ", rights.concurrent_calls, ", want at least 1");
    }
  }
  if (file.has_bytes_per_second()) {
    rights.bytes_per_second = file.bytes_per_second();
    if (!(rights.bytes_per_second >= 1)) {
      return Invalid("bytes_per_second: got ", rights.bytes_per_second, ", want at least 1");
    }
  }
  return rights;
}

}  // namespace

absl::StatusOr<Policy> Policy::Parse(const std::string& path, const std::string& content) {
  access::PolicyFile file;
  const absl::Status read = ReadMessage(path, content, &file);
  if (!read.ok()) {
    ATTNBIAS_RETURN_IF_ERROR(CheckEntries(path, content));
    return read;
  }
  Policy policy;
  for (const auto& [name, entry] : file.callers()) {
    const std::string place = PlaceOf(path, name);
    if (!IsCallerName(name)) {
      return Invalid(place,
                     ": got an invalid caller name, want 1 to "
                     "128 printable ASCII characters without spaces");
    }
    absl::StatusOr<Rights> rights = RightsOf(entry);
    if (!rights.ok()) return Located(place, rights.status());
    policy.callers_.emplace(name, std::make_shared<const Rights>(*std::move(rights)));
  }
  if (absl::c_none_of(policy.callers_,
                      [](const auto& caller) { return caller.second->methods.any(); })) {
    return Invalid(path,
                   ": callers: got no caller that may call a method, "
                   "want at least one");
  }
  return policy;
}

Policy Policy::Everything() {
  Policy policy;
  Rights all;
  all.methods.set();
  all.table_prefixes = {""};
  policy.callers_.emplace(kOthers, std::make_shared<const Rights>(std::move(all)));
  return policy;
}

bool Policy::Names(const std::string& name) const {
  return name != kOthers && callers_.contains(name);
}

std::shared_ptr<const Rights> Policy::Find(const std::string& name) const {
  auto found = callers_.find(name);
  if (found == callers_.end()) found = callers_.find(kOthers);
  return found == callers_.end() ? nullptr : found->second;
}

}  // namespace attnbias
