// SPDX-License-Identifier: Apache-2.0
// Text of a server, made safe for terminals and logs. For this project's own
// programs.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace attnbias::internal {

// Returns `text` with each byte that is not a printable character of ASCII as
// \xNN: control characters, and characters that turn text around.
std::string Printable(absl::string_view text);

// Returns the first hundred bytes of it, and "..." if there are more: what an
// error repeats of a name.
std::string Excerpt(absl::string_view text);

}  // namespace attnbias::internal
