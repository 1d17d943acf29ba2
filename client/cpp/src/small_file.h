// SPDX-License-Identifier: Apache-2.0
// A small file, read whole.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attnbias {

// INVALID_ARGUMENT, naming the option `name`, where it cannot be read.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path,
                                          absl::string_view name);

}  // namespace attnbias
