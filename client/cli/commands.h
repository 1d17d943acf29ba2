// SPDX-License-Identifier: Apache-2.0
// The tool's command line and what its commands do.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "client/cli/screen.h"

namespace attnbias {

// Where a command writes.
struct Terminal {
  std::ostream& out;
  std::ostream& err;
  // Whether `err` is watched by a person: long fetches show their progress.
  bool interactive;
  // What `out` can show.
  Screen screen = {};
};

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // the server's answer, a file, health
inline constexpr int kExitUsage = 2;   // the command line, the files it names

// Runs the tool; `arguments` without the program's name. The exit code.
int RunTool(const std::vector<std::string>& arguments, Terminal terminal);

}  // namespace attnbias
