// SPDX-License-Identifier: Apache-2.0
// Client and server authentication: TLS and the bearer token.
#pragma once

#include <grpcpp/security/credentials.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "attnbias/client.h"

namespace attnbias {

// Reads the TLS options, or the environment if they are unset. INVALID_ARGUMENT names the option or
// variable if its file cannot be read or has the wrong content.
absl::StatusOr<TlsOptions> TlsFrom(const std::optional<TlsOptions>& options);

// Makes channel credentials from options returned by TlsFrom.
std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const TlsOptions& tls);

// The bearer token that identifies the caller. Thread-safe.
class BearerToken {
 public:
  // Reads the token from the options or, if they are unset, from the environment; null means no
  // token. INVALID_ARGUMENT names the option or variable.
  static absl::StatusOr<std::unique_ptr<BearerToken>> From(const ClientOptions& options);

  // Returns the name of the option or variable that the token came from.
  const std::string& name() const { return name_; }

  // Returns the "authorization" value for a call. Rereads the file, if there is one; if it is
  // unreadable or contains no token, uses the previous token.
  std::string Authorization();

 private:
  BearerToken(std::string name, std::string path, std::string token)
      : name_(std::move(name)), path_(std::move(path)), token_(std::move(token)) {}

  // Reads the file, if there is one, and checks the token.
  absl::Status Read();

  const std::string name_;
  const std::string path_;  // empty if the token itself was given
  std::mutex mutex_;
  std::string token_;
};

}  // namespace attnbias
