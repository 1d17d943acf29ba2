// SPDX-License-Identifier: Apache-2.0
// Converts errors to gRPC statuses with google.rpc details.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/support/status.h"
#include "server/observe/metrics.h"

namespace attnbias {

// Prefixes the field path that the message begins with: "alibi.num_heads: ..." under "spec" becomes
// "spec.alibi.num_heads: ...". Errors without a field path, and an empty `parent`, leave it
// unchanged.
absl::Status Under(std::string_view parent, const absl::Status& status);

// Shortens the message to a kilobyte: a client refuses a status of more than 8, which contains the
// message three times.
absl::Status WithShortMessage(const absl::Status& status);

// Returns the reason that calls with this end are counted by, if they count as rejected.
std::optional<Rejection> RejectionOf(const absl::Status& status);

// Returns the time after which the caller should retry, if it should.
std::optional<absl::Duration> RetryDelay(const absl::Status& status);

// Keeps code and message. Details: ErrorInfo always, with the status's reason or else its code's;
// BadRequest if the message begins with a field's path and ": "; RetryInfo if there is a
// RetryDelay; RequestInfo if `request_id` is not empty.
grpc::Status ToGrpcStatus(const absl::Status& status, const std::string& request_id = "");

}  // namespace attnbias
