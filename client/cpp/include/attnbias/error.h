// SPDX-License-Identifier: Apache-2.0
// Details of a server's error, beyond its code and message. All text is printable: control
// characters are escaped, for example as \x1b.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace attnbias {

// Returns the machine-readable reason, such as "TENSOR_TOO_LARGE_FOR_UNARY"; empty if the server
// sent none. docs/errors.md lists the reasons.
std::string Reason(const absl::Status& status);

// Returns the id of the call in the server's log; empty if the server sent none.
std::string RequestId(const absl::Status& status);

// One invalid field in a request.
struct FieldViolation {
  std::string field;
  std::string description;
};

// Returns the invalid fields in the request; empty if the server named none.
std::vector<FieldViolation> FieldViolations(const absl::Status& status);

}  // namespace attnbias
