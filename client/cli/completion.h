// SPDX-License-Identifier: Apache-2.0
// Completion of the tool's command lines in shells.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/strings/string_view.h"

namespace attnbias {

// Returns a script that completes the commands and flags of `app` and names of
// encodings and their fields. `shell` is "bash", "zsh" or "fish".
std::string CompletionScript(const CLI::App& app, absl::string_view shell);

}  // namespace attnbias
