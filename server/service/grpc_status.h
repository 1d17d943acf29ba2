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

// Adds a prefix to the field path at the beginning of the message: "alibi.num_heads: ..." under
// "spec" becomes "spec.alibi.num_heads: ...". The status is unchanged if it has no field path or if
// `parent` is empty.
absl::Status Under(std::string_view parent, const absl::Status& status);

// Shortens the message to a kilobyte: clients reject a status of more than 8 KB, and a status
// contains its message three times.
absl::Status WithShortMessage(const absl::Status& status);

// Returns the reason under which calls with this status are counted, if they count as rejected.
std::optional<Rejection> RejectionOf(const absl::Status& status);

// Returns the time after which the caller should retry, if any.
std::optional<absl::Duration> RetryDelay(const absl::Status& status);

// Keeps the code and the message, and adds details: ErrorInfo with the status's reason or, if it
// has none, the reason for its code; BadRequest if the message begins with a field path and ": ";
// RetryInfo if RetryDelay returns a delay; RequestInfo if `request_id` is not empty.
grpc::Status ToGrpcStatus(const absl::Status& status, const std::string& request_id = "");

}  // namespace attnbias
