// SPDX-License-Identifier: Apache-2.0
#include "server/access/access.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/security/auth_context.h"

namespace attnbias {
namespace {

// Name of a caller over a socket file without token or certificate.
constexpr char kSocketName[] = "unix";

// Number of accounts above which those without calls are dropped.
constexpr size_t kMaxIdleAccounts = 1024;

absl::Status Unauthenticated(absl::string_view reason, const std::string& message) {
  return WithReason(absl::UnauthenticatedError(message), reason);
}

absl::Status NoName() {
  return Unauthenticated("NO_CREDENTIALS",
                         "this server requires authentication: send the metadata 'authorization: "
                         "Bearer TOKEN', or a client certificate if it asks for one");
}

// Returns the bearer token in a call's metadata; nullopt if it has none.
absl::StatusOr<std::optional<std::string>> BearerToken(const grpc::CallbackServerContext& context) {
  std::string_view value = OnlyValue(context.client_metadata(), "authorization");
  if (value.empty()) return std::nullopt;
  if (!absl::StartsWithIgnoreCase({value.data(), value.size()}, "Bearer ")) {
    return Unauthenticated("NOT_A_BEARER_TOKEN",
                           "the metadata 'authorization' has an unsupported "
                           "scheme, want 'Bearer TOKEN'");
  }
  value.remove_prefix(sizeof("Bearer ") - 1);
  return std::string(value);
}

// Returns the names in the peer's certificate, if the peer presented one: the URIs among its
// alternative names, then the DNS names, or else its common name. Names of other kinds, such as
// e-mail addresses, do not identify a workload.
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

// Makes a value from its only file.
template <typename Value>
typename ReloadableFile<Value>::Make Parsed(const std::string& path) {
  return [path](const std::vector<std::string>& contents) {
    return Value::Parse(path, contents.front());
  };
}

}  // namespace

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
