// SPDX-License-Identifier: Apache-2.0
// The attnbias command-line tool.
#include <stdlib.h>
#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/heat_map.h"

int main(int argc, char** argv) {
  // The tool reports errors itself.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return attnbias::RunTool(
      arguments, {.out = std::cout, .err = std::cerr, .screen = attnbias::ScreenOf(STDOUT_FILENO)});
}
