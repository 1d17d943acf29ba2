// SPDX-License-Identifier: Apache-2.0
// Turns gRPC's status, google.rpc details included, into Abseil's, and explains why a client cannot
// connect to its server.
#pragma once

#include <grpcpp/support/status.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "attnbias/client.h"

namespace attnbias {

// Converts a status: keeps its code and its message, made printable, and stores its details as a
// payload. If there is no connection, or the server rejects the caller, the message contains
// advice. The target and TLS of `options` must already be resolved.
absl::Status FromRpc(const grpc::Status& status, const ClientOptions& options, bool has_token);

// Returns the delay of google.rpc.RetryInfo, if the server sent one.
std::optional<absl::Duration> RetryDelay(const grpc::Status& status);

// Returns true if gRPC reports that no address of the target is reachable.
bool IsUnreached(const grpc::Status& status);

// Explains why the target cannot be reached and what to try, based on gRPC's report on the last
// address. If the target has several addresses, connects to each one and returns the most
// informative reason, followed by the reason for each address. Returns within 3 s.
std::string WhyAllUnreached(absl::string_view report, const ClientOptions& options);

}  // namespace attnbias
