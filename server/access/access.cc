// SPDX-License-Identifier: Apache-2.0
#include "server/access/access.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "access/policy.pb.h"
#include "core/base/digest.h"
#include "core/base/errors.h"
#include "core/mount/json_file.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/json_util.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/security/auth_context.h"
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

// Errors do not repeat the second word, which may be a secret rather than a digest.
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

// Name of a caller that connects over a socket file and has neither a token nor a certificate.
constexpr char kSocketName[] = "unix";

// Accounts without calls are dropped once there are more accounts than this.
constexpr size_t kMaxIdleAccounts = 1024;

absl::Status Unauthenticated(absl::string_view reason, const std::string& message) {
  return WithReason(absl::UnauthenticatedError(message), reason);
}

absl::Status NoName() {
  return Unauthenticated("NO_CREDENTIALS",
                         "this server requires authentication: send the metadata 'authorization: "
                         "Bearer TOKEN', or a client certificate if it asks for one");
}

// Returns the bearer token in a call's metadata; nullopt if there is none.
absl::StatusOr<std::optional<std::string>> BearerToken(const grpc::CallbackServerContext& context) {
  std::string_view value = OnlyValue(context.client_metadata(), "authorization");
  if (value.empty()) return std::nullopt;
  if (!absl::StartsWithIgnoreCase({value.data(), value.size()}, "Bearer ")) {
    return Unauthenticated("NOT_A_BEARER_TOKEN",
                           "the 'authorization' metadata has an unsupported "
                           "scheme, want 'Bearer TOKEN'");
  }
  value.remove_prefix(sizeof("Bearer ") - 1);
  return std::string(value);
}

// Returns the names in the peer's certificate, if the peer presented one: the URIs and then the DNS
// names among its alternative names or, if there are none, its common name. Other kinds of names,
// such as e-mail addresses, do not identify a workload.
std::vector<std::string> CertificateNames(const grpc::CallbackServerContext& context) {
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  std::vector<std::string> names;
  if (!peer->IsPeerAuthenticated()) return names;
  const auto add = [&](const char* kind) {
    for (const grpc::string_ref& name : peer->FindPropertyValues(kind)) {
      names.emplace_back(name.data(), name.size());
    }
  };
  add(GRPC_PEER_URI_PROPERTY_NAME);
  add(GRPC_PEER_DNS_PROPERTY_NAME);
  if (names.empty()) add(GRPC_X509_CN_PROPERTY_NAME);
  return names;
}

std::string ChosenName(const std::vector<std::string>& names, const Policy& policy) {
  for (const std::string& name : names) {
    if (policy.Names(name)) return name;
  }
  return names.front();
}

absl::Status CheckTogether(const AccessFiles& files) {
  const CertificateFiles& tls = files.tls;
  if (tls.certificate.empty() != tls.key.empty()) {
    return tls.key.empty() ? Invalid("--tls-cert: needs --tls-key")
                           : Invalid("--tls-key: needs --tls-cert");
  }
  if (!tls.client_ca.empty() && tls.empty()) {
    return Invalid("--tls-client-ca: needs --tls-cert and --tls-key");
  }
  if (!files.policy.empty() && files.tokens.empty() && tls.client_ca.empty()) {
    return Invalid(
        "--policy: needs --tokens or --tls-client-ca, which identify "
        "callers");
  }
  return absl::OkStatus();
}

// Returns a function that parses a value from a single file.
template <typename Value>
typename ReloadableFile<Value>::Make Parsed(const std::string& path) {
  return [path](const std::vector<std::string>& contents) {
    return Value::Parse(path, contents.front());
  };
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
                   ": got no token, want at least one line of the form NAME "
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

// Returns the error in the first invalid entry, with the caller's name, which protobuf's errors
// omit. Returns OK if the error is elsewhere.
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

Access::Access(const AccessFiles& files)
    : certificates_("certificates", {files.tls.certificate, files.tls.key, files.tls.client_ca},
                    [tls = files.tls](const std::vector<std::string>& contents) {
                      return CheckCertificates(tls, contents);
                    }),
      tokens_("tokens", {files.tokens}, Parsed<Tokens>(files.tokens)),
      policy_("policy", {files.policy}, Parsed<Policy>(files.policy)),
      asks_for_names_(!files.tokens.empty() || !files.tls.client_ca.empty()) {}

absl::StatusOr<std::unique_ptr<Access>> Access::Load(const AccessFiles& files) {
  ATTNBIAS_RETURN_IF_ERROR(CheckTogether(files));
  std::unique_ptr<Access> access(new Access(files));
  ATTNBIAS_RETURN_IF_ERROR(Located("--tls-cert", access->certificates_.Load()));
  ATTNBIAS_RETURN_IF_ERROR(Located("--tokens", access->tokens_.Load()));
  ATTNBIAS_RETURN_IF_ERROR(Located("--policy", access->policy_.Load()));
  return access;
}

absl::StatusOr<Identity> Access::Identify(const grpc::CallbackServerContext& context) const {
  if (!asks_for_names_) return Identity{};
  static const auto& everything =
      *new std::shared_ptr<const Policy>(new Policy(Policy::Everything()));
  const std::shared_ptr<const Policy> given = policy_.Get();
  const std::shared_ptr<const Policy>& policy = given == nullptr ? everything : given;
  ATTNBIAS_ASSIGN_OR_RETURN(const std::string name, NameOf(context, *policy));
  std::shared_ptr<const Rights> rights = policy->Find(name);
  if (rights == nullptr) {
    return WithReason(
        absl::PermissionDeniedError(absl::StrCat("the policy has no entry for ", Shortened(name))),
        "CALLER_WITHOUT_RIGHTS");
  }
  return Identity{AccountOf(name), std::move(rights)};
}

absl::StatusOr<std::string> Access::NameOf(const grpc::CallbackServerContext& context,
                                           const Policy& policy) const {
  if (const std::shared_ptr<const Tokens> tokens = tokens_.Get()) {
    ATTNBIAS_ASSIGN_OR_RETURN(const std::optional<std::string> token, BearerToken(context));
    if (token.has_value()) {
      if (const std::string* name = tokens->NameOf(*token)) return *name;
      return Unauthenticated("UNKNOWN_TOKEN", "got an unknown token");
    }
  }
  const std::vector<std::string> names = CertificateNames(context);
  if (!names.empty()) return ChosenName(names, policy);
  if (absl::StartsWith(context.peer(), "unix:")) return kSocketName;
  return NoName();
}

std::shared_ptr<Account> Access::AccountOf(const std::string& name) const {
  MutexLock lock(mutex_);
  std::shared_ptr<Account>& account = accounts_[name];
  if (account != nullptr) return account;
  account = std::make_shared<Account>(name);
  std::shared_ptr<Account> made = account;
  if (accounts_.size() > kMaxIdleAccounts) {
    absl::erase_if(accounts_, [](const auto& entry) { return entry.second.use_count() == 1; });
  }
  return made;
}

std::shared_ptr<grpc::ServerCredentials> Access::MakeCredentials() const {
  if (certificates() == nullptr) return grpc::InsecureServerCredentials();
  return TlsCredentials([this] { return certificates(); }, requires_certificate());
}

void Access::Refresh() {
  certificates_.Refresh();
  tokens_.Refresh();
  policy_.Refresh();
}

}  // namespace attnbias
