// SPDX-License-Identifier: Apache-2.0
// What each status code is called, and what an error that has it means; errors
// to gRPC statuses with google.rpc details.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/support/status.h"

namespace attnbias {

// Why something was turned away that was not a mistake of the caller.
enum class Rejection : uint8_t {
  kOverload,
  kCallerLimit,
  kDraining,
  kStalledClient,
  kUnauthenticated,
  kPermissionDenied
};
inline constexpr int kNumRejections = 6;

struct StatusCodeRow {
  // In metrics: the names of go-grpc-middleware, which dashboards know.
  std::string_view metrics_name;
  // In ErrorInfo, where the error has none of its own.
  std::string_view reason;
  // Whether the message's field path becomes a BadRequest.
  bool names_field = false;
  // Whether the caller should try again.
  bool may_pass = false;
  std::optional<Rejection> rejection = std::nullopt;
};

// By number: gRPC's codes are Abseil's.
inline constexpr std::array<StatusCodeRow, 17> kStatusCodes = {{
    {"OK", ""},
    {"Canceled", "CANCELLED"},
    {"Unknown", "UNKNOWN"},
    {"InvalidArgument", "INVALID_FIELD", true},
    {"DeadlineExceeded", "DEADLINE_EXCEEDED"},
    {"NotFound", "TABLE_NOT_FOUND", true},
    {"AlreadyExists", "ALREADY_EXISTS"},
    {"PermissionDenied", "PERMISSION_DENIED", true, false,
     Rejection::kPermissionDenied},
    {"ResourceExhausted", "OVERLOADED", false, true, Rejection::kOverload},
    {"FailedPrecondition", "FINGERPRINT_MISMATCH", true},
    {"Aborted", "ABORTED", false, false, Rejection::kStalledClient},
    {"OutOfRange", "OUT_OF_RANGE", true},
    {"Unimplemented", "UNKNOWN_FIELD", true},
    {"Internal", "INTERNAL"},
    {"Unavailable", "DRAINING", false, false, Rejection::kDraining},
    {"DataLoss", "DATA_LOSS"},
    {"Unauthenticated", "UNAUTHENTICATED", false, false,
     Rejection::kUnauthenticated},
}};

inline const StatusCodeRow& RowOf(const absl::Status& status) {
  return kStatusCodes[static_cast<int>(status.code())];
}

// Prefixes the field path that the message begins with: "alibi.num_heads: ..."
// under "spec" becomes "spec.alibi.num_heads: ...". Errors that name no field
// stay as they are: those are not about the request. So do all under nothing.
absl::Status Under(std::string_view parent, const absl::Status& status);

// The same, its message of a kilobyte at most: a client refuses a status, which
// has the message three times over, that is larger than 8.
absl::Status WithShortMessage(const absl::Status& status);

// As what the call is counted that ends so; empty for what is not turned away.
std::optional<Rejection> RejectionOf(const absl::Status& status);

// How long the caller should wait before it tries again; empty where that would
// not help.
std::optional<absl::Duration> RetryDelay(const absl::Status& status);

// Same code and message. Details: ErrorInfo always, with the status's reason or
// else its code's own; BadRequest where the message begins with a field's path
// and ": "; RetryInfo where RetryDelay is; RequestInfo where the call has a
// name, `request_id`.
grpc::Status ToGrpcStatus(const absl::Status& status,
                          const std::string& request_id = "");

}  // namespace attnbias
