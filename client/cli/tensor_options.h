// SPDX-License-Identifier: Apache-2.0
// The command line's words for an encoding, an extent and an output, and the
// TensorSpec they stand for.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attnbias/v1/service.pb.h"

namespace attnbias {

// As typed.
struct TensorOptions {
  std::string encoding;
  std::vector<std::string> fields;
  // Values of flags, by the field of the encoding's extent, of the output or of
  // its mask. Empty: not given.
  std::map<std::string, std::vector<std::string>> flags;
};

// "--query-length" for the field query_length.
std::string FlagOf(absl::string_view field);

// INVALID_ARGUMENT names the flag or field, what came and what was wanted.
// What only the server can judge is left to it.
absl::StatusOr<v1::TensorSpec> BuildSpec(const TensorOptions& options);

}  // namespace attnbias
