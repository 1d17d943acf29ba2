// SPDX-License-Identifier: Apache-2.0
// Converts gRPC statuses, including their google.rpc details, to Abseil's, and explains why a
// client cannot connect to its server.
#pragma once

#include <grpcpp/support/status.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "attnbias/client.h"

namespace attnbias {

// Converts a status: keeps the code and the message (made printable), and stores the details as a
// payload. If there is no connection, or the server rejects the caller, the message contains
// advice. The target and TLS settings in `options` must already be resolved.
absl::Status FromRpc(const grpc::Status& status, const ClientOptions& options, bool has_token);

// Returns the delay in google.rpc.RetryInfo, if the server sent one.
std::optional<absl::Duration> RetryDelay(const grpc::Status& status);

// Returns true if gRPC reports that none of the target's addresses is reachable.
bool IsUnreached(const grpc::Status& status);

// Explains why the target cannot be reached and what to try, based on gRPC's report on the last
// address. If the target has several addresses, connects to each one and returns the most
// informative reason, followed by the reason for each address. Returns within 3 s.
std::string WhyAllUnreached(absl::string_view report, const ClientOptions& options);

}  // namespace attnbias
