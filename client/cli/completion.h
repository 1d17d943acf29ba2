// SPDX-License-Identifier: Apache-2.0
// Completion of the tool's command lines in shells.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace attnbias {

// Returns the long flags of `app`, without those of its commands: "--server".
std::vector<std::string> LongFlags(const CLI::App& app);

// Returns a script that completes the commands and flags of `app` and names of
// encodings; in bash and zsh also their fields. `shell` is "bash", "zsh" or
// "fish".
std::string CompletionScript(const CLI::App& app, absl::string_view shell);

}  // namespace attnbias
