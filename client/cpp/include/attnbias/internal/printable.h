// SPDX-License-Identifier: Apache-2.0
// Makes a server's text safe for terminals and logs. For this project's own programs.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace attnbias::internal {

// Returns `text` with each byte that is not printable ASCII replaced by \xNN. This includes control
// characters, and characters that reverse the text's direction.
std::string Printable(absl::string_view text);

// Returns the first hundred bytes of `text`, made printable and followed by "..." if there are
// more. For quoting names in errors.
std::string Excerpt(absl::string_view text);

}  // namespace attnbias::internal
