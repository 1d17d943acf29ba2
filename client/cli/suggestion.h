// SPDX-License-Identifier: Apache-2.0
// A known name for a mistyped word.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace attnbias {

// Returns " (did you mean health?)" with the nearest of `names`, or "" if none
// is near: a third of the letters inserted, deleted, replaced or swapped.
std::string DidYouMean(absl::string_view word, const std::vector<std::string>& names);

}  // namespace attnbias
