// SPDX-License-Identifier: Apache-2.0
// Writes files atomically.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attnbias {

// Writes `pieces` to a temporary file in the same folder as `path`, then renames it. `path` is
// always either the old file or the complete new one.
absl::Status WriteFileAtomically(const std::string& path,
                                 const std::vector<absl::string_view>& pieces);

}  // namespace attnbias
