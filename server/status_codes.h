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

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_STATUS_CODES_H_
