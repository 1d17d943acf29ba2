// SPDX-License-Identifier: Apache-2.0
// A bound on files that are read, and writes that are all or nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attnbias {

// INVALID_ARGUMENT if a tensor to be sent is over the limit.
absl::Status CheckAtMost(int64_t bytes, int64_t max_bytes);

// Writes `pieces` to a file beside `path` and renames it: `path` is the old
// file or the whole new one, never a part.
absl::Status WriteFileAtomically(const std::string& path,
                                 const std::vector<absl::string_view>& pieces);

}  // namespace attnbias
