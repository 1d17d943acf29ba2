// SPDX-License-Identifier: Apache-2.0
// Whom a client trusts and who it is: TLS with a server, and the bearer token.
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

// Reads TLS options, or without them the environment. INVALID_ARGUMENT
// names the option or the variable of a file that cannot be read or does not
// hold what it should.
absl::StatusOr<TlsOptions> TlsFrom(const std::optional<TlsOptions>& options);

// Makes channel credentials of options that TlsFrom returned.
std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const TlsOptions& tls);

// The bearer token that says who calls. For any thread.
class BearerToken {
 public:
  // Reads the options, or without them the environment; null means no token.
  // INVALID_ARGUMENT names the option or the variable.
  static absl::StatusOr<std::unique_ptr<BearerToken>> From(
      const ClientOptions& options);

  // Of the option or the variable.
  const std::string& name() const { return name_; }

  // What a call carries as "authorization"; of a file what it holds now, or
  // held when it last had a token.
  std::string Authorization();

 private:
  explicit BearerToken(std::string name) : name_(std::move(name)) {}

  absl::StatusOr<std::string> ReadFile() const;

  const std::string name_;
  std::string path_;  // "" where the token itself was given
  std::mutex mutex_;
  std::string token_;
};

}  // namespace attnbias
