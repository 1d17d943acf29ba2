// SPDX-License-Identifier: Apache-2.0
// What tells errors of one code apart.
#ifndef ATTNBIAS_CORE_BASE_REASON_H_
#define ATTNBIAS_CORE_BASE_REASON_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace attnbias {

inline constexpr char kReasonUrl[] = "attnbias/reason";

inline absl::Status WithReason(absl::Status status, absl::string_view reason) {
  status.SetPayload(kReasonUrl, absl::Cord(reason));
  return status;
}

// Empty where its code says all.
inline std::string ReasonOf(const absl::Status& status) {
  const absl::optional<absl::Cord> reason = status.GetPayload(kReasonUrl);
  return reason.has_value() ? std::string(*reason) : "";
}

// Of RESOURCE_EXHAUSTED where the limit is the caller's own.
inline constexpr char kCallerLimit[] = "CALLER_LIMIT";

inline absl::Status CallerLimit(absl::string_view message) {
  return WithReason(absl::ResourceExhaustedError(message), kCallerLimit);
}

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_BASE_REASON_H_
