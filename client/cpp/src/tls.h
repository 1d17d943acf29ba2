// SPDX-License-Identifier: Apache-2.0
// TLS with a server: whom the client trusts, and its own certificate.
#pragma once

#include <grpcpp/security/credentials.h>

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "attnbias/client.h"

namespace attnbias {

// What the options, or without them the environment, say. INVALID_ARGUMENT
// names the option or the variable of a file that cannot be read or does not
// hold what it should.
absl::StatusOr<TlsOptions> TlsFrom(const std::optional<TlsOptions>& options);

// Of options that TlsFrom gave.
std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const TlsOptions& tls);

}  // namespace attnbias
