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
// "spec.alibi.num_heads: ...". Errors that name no field stay as they are: those are not about the
// request. So do all under nothing.
absl::Status Under(std::string_view parent, const absl::Status& status);

// The same, its message of a kilobyte at most: a client refuses a status, which has the message
// three times over, that is larger than 8.
absl::Status WithShortMessage(const absl::Status& status);

// Returns the reason that calls with this end are counted by, if they count as rejected.
std::optional<Rejection> RejectionOf(const absl::Status& status);

// Returns the time after which the caller should retry, if it should.
std::optional<absl::Duration> RetryDelay(const absl::Status& status);

// Same code and message. Details: ErrorInfo always, with the status's reason or else its code's
// own; BadRequest where the message begins with a field's path and ": "; RetryInfo where RetryDelay
// is; RequestInfo where the call has a name, `request_id`.
grpc::Status ToGrpcStatus(const absl::Status& status, const std::string& request_id = "");

}  // namespace attnbias
