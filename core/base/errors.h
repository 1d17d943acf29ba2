// SPDX-License-Identifier: Apache-2.0
// Error texts and reasons, and macros that return errors early.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

// Returns from the function if `expression`, an absl::Status, is an error.
#define ATTNBIAS_RETURN_IF_ERROR(expression)                  \
  do {                                                        \
    if (absl::Status status_ = (expression); !status_.ok()) { \
      return status_;                                         \
    }                                                         \
  } while (false)

// Returns from the function if `expression`, an absl::StatusOr, is an error. Otherwise assigns its
// value to `declaration`, an existing variable or the declaration of a new one:
//
//   ATTNBIAS_ASSIGN_OR_RETURN(const PlanPtr plan, engine.MakePlan(spec));
#define ATTNBIAS_ASSIGN_OR_RETURN(declaration, ...)                                         \
  ATTNBIAS_ASSIGN_OR_RETURN_AS_(ATTNBIAS_STATUS_CONCAT_(status_or_, __LINE__), declaration, \
                                (__VA_ARGS__))
// A declaration cannot be parenthesized.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define ATTNBIAS_ASSIGN_OR_RETURN_AS_(result, declaration, expression) \
  auto result = expression;                                            \
  if (!result.ok()) return std::move(result).status();                 \
  declaration = *std::move(result)
// NOLINTEND(bugprone-macro-parentheses)
#define ATTNBIAS_STATUS_CONCAT_(a, b) ATTNBIAS_STATUS_CONCAT_AGAIN_(a, b)
#define ATTNBIAS_STATUS_CONCAT_AGAIN_(a, b) a##b

namespace attnbias {

// Returns INVALID_ARGUMENT with the concatenated parts: "FIELD: got VALUE, want VALUE".
template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// Returns the status with the message "PLACE: MESSAGE"; OK stays OK.
inline absl::Status Located(absl::string_view place, const absl::Status& status) {
  return {status.code(), absl::StrCat(place, ": ", status.message())};
}

template <typename T>
absl::StatusOr<T> Located(absl::string_view place, absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return Located(place, result.status());
}

// Returns `text`, or its beginning and its length if it exceeds `most` bytes, so that neither
// responses nor log lines grow with input from clients.
inline std::string Shortened(absl::string_view text, size_t most = 128) {
  if (text.size() <= most) return std::string(text);
  size_t end = most;
  // Does not split a character.
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
  return absl::StrCat(text.substr(0, end), "... (", text.size(), " bytes)");
}

// URL of the payload that distinguishes errors with the same code.
inline constexpr char kReasonUrl[] = "attnbias/reason";

inline absl::Status WithReason(absl::Status status, absl::string_view reason) {
  status.SetPayload(kReasonUrl, absl::Cord(reason));
  return status;
}

// Returns the reason, or an empty string if there is none.
inline std::string ReasonOf(const absl::Status& status) {
  const absl::optional<absl::Cord> reason = status.GetPayload(kReasonUrl);
  return reason.has_value() ? std::string(*reason) : "";
}

// Reason for RESOURCE_EXHAUSTED if the caller has reached its own limit.
inline constexpr char kCallerLimit[] = "CALLER_LIMIT";

inline absl::Status CallerLimit(absl::string_view message) {
  return WithReason(absl::ResourceExhaustedError(message), kCallerLimit);
}

}  // namespace attnbias
