// SPDX-License-Identifier: Apache-2.0
// What each status code is called, and what an error that has it means.
#ifndef ATTNBIAS_SERVER_STATUS_CODES_H_
#define ATTNBIAS_SERVER_STATUS_CODES_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"

namespace attnbias {

// Why something was turned away that was not a mistake of the caller.
enum class Rejection : uint8_t {
  kOverload,
  kDraining,
  kConnectionLimit,
  kStalledClient
};
inline constexpr int kNumRejections = 4;

struct StatusCodeRow {
  // In gRPC's documents, and in the log.
  std::string_view name;
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
    {"OK", "OK", ""},
    {"CANCELLED", "Canceled", "CANCELLED"},
    {"UNKNOWN", "Unknown", "UNKNOWN"},
    {"INVALID_ARGUMENT", "InvalidArgument", "INVALID_FIELD", true},
    {"DEADLINE_EXCEEDED", "DeadlineExceeded", "DEADLINE_EXCEEDED"},
    {"NOT_FOUND", "NotFound", "TABLE_NOT_FOUND", true},
    {"ALREADY_EXISTS", "AlreadyExists", "ALREADY_EXISTS"},
    {"PERMISSION_DENIED", "PermissionDenied", "PERMISSION_DENIED"},
    {"RESOURCE_EXHAUSTED", "ResourceExhausted", "OVERLOADED", false, true,
     Rejection::kOverload},
    {"FAILED_PRECONDITION", "FailedPrecondition", "FINGERPRINT_MISMATCH", true},
    {"ABORTED", "Aborted", "ABORTED", false, false, Rejection::kStalledClient},
    {"OUT_OF_RANGE", "OutOfRange", "OUT_OF_RANGE", true},
    {"UNIMPLEMENTED", "Unimplemented", "UNKNOWN_FIELD", true},
    {"INTERNAL", "Internal", "INTERNAL"},
    {"UNAVAILABLE", "Unavailable", "DRAINING", false, true,
     Rejection::kDraining},
    {"DATA_LOSS", "DataLoss", "DATA_LOSS"},
    {"UNAUTHENTICATED", "Unauthenticated", "UNAUTHENTICATED"},
}};

inline const StatusCodeRow& RowOf(const absl::Status& status) {
  return kStatusCodes[static_cast<int>(status.code())];
}

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_STATUS_CODES_H_
