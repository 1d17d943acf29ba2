// SPDX-License-Identifier: Apache-2.0
// The tool's command line and its commands.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "client/cli/heat_map.h"

namespace attnbias {

// Streams that a command writes to.
struct Terminal {
  std::ostream& out;
  std::ostream& err;
  // Size and colors of `out`.
  Screen screen = {};
};

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // a failed call, an unwritable file, an unhealthy server
inline constexpr int kExitUsage = 2;   // an invalid command line, or an invalid file that it names

// Runs the tool and returns the exit code. `arguments` excludes the program's name.
int RunTool(const std::vector<std::string>& arguments, Terminal terminal);

}  // namespace attnbias
