// SPDX-License-Identifier: Apache-2.0
// What a server said about an error beyond its code and message. All text is
// printable: control characters are escaped, as \x1b.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace attnbias {

// Why the server refused, for programs, as "TENSOR_TOO_LARGE_FOR_UNARY"; empty
// if it did not say (docs/errors.md lists them).
std::string Reason(const absl::Status& status);

// What the server's log calls the call; empty where no server says.
std::string RequestId(const absl::Status& status);

// One wrong field of a request.
struct FieldViolation {
  std::string field;
  std::string description;
};

// The fields that a status of the Client blames; empty if it blames none.
std::vector<FieldViolation> FieldViolations(const absl::Status& status);

}  // namespace attnbias
