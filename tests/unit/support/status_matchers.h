// SPDX-License-Identifier: Apache-2.0
// Matchers for statuses, named as in newer Abseil versions. There is no "expect not OK": errors are
// matched by code and by what they name.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"

namespace attnbias {

inline const absl::Status& GetStatus(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& GetStatus(const absl::StatusOr<T>& result) {
  return result.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << GetStatus(arg).ToString();
  return GetStatus(arg).ok();
}

// Matches a status with this code and a message that matches `message`.
MATCHER_P2(StatusIs, code, message, "is the expected error") {
  *result_listener << GetStatus(arg).ToString();
  return GetStatus(arg).code() == code &&
         testing::ExplainMatchResult(message, std::string(GetStatus(arg).message()),
                                     result_listener);
}

// Matches a status with this code and any message.
MATCHER_P(StatusIs, code, "is the expected error") {
  *result_listener << GetStatus(arg).ToString();
  return GetStatus(arg).code() == code;
}

// Matches INVALID_ARGUMENT with a message that begins with `field_and_reason`.
inline auto IsInvalid(const std::string& field_and_reason) {
  return StatusIs(absl::StatusCode::kInvalidArgument, testing::StartsWith(field_and_reason));
}

// Matches INVALID_ARGUMENT with a message that contains `text`.
inline auto IsInvalidWith(const std::string& text) {
  return StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr(text));
}

}  // namespace attnbias
