// SPDX-License-Identifier: Apache-2.0
// Authentication of client and server: TLS and the bearer token.
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
// the variable of a file that cannot be read or has the wrong content.
absl::StatusOr<TlsOptions> TlsFrom(const std::optional<TlsOptions>& options);

// Makes channel credentials from options returned by TlsFrom.
std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const TlsOptions& tls);

// The bearer token that identifies the caller. Thread-safe.
class BearerToken {
 public:
  // Reads the options, or the environment if they are unset; null means no token. INVALID_ARGUMENT
  // names the option or the variable.
  static absl::StatusOr<std::unique_ptr<BearerToken>> From(const ClientOptions& options);

  // Returns the name of the option or the variable.
  const std::string& name() const { return name_; }

  // Returns the value of "authorization" for a call. Reads the file, if there
  // is one; if the file contains no token, returns the previous one.
  std::string Authorization();

 private:
  BearerToken(std::string name, std::string path, std::string token)
      : name_(std::move(name)), path_(std::move(path)), token_(std::move(token)) {}

  // Checks the token, after reading the file if there is one.
  absl::Status Read();

  const std::string name_;
  const std::string path_;  // empty if the token itself was given
  std::mutex mutex_;
  std::string token_;
};

}  // namespace attnbias
