// SPDX-License-Identifier: Apache-2.0
// Completion of the tool's command lines in shells.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace attnbias {

// Returns the script that completes command lines in "bash", "zsh" or "fish".
absl::string_view CompletionScript(absl::string_view shell);

// Returns the completions of the last of `words`, the arguments up to the cursor. `words` is not
// empty. Returns nullopt if the shell is to complete file names.
std::optional<std::vector<std::string>> Completions(const CLI::App& app,
                                                    std::vector<std::string> words);

}  // namespace attnbias
