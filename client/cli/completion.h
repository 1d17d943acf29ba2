// SPDX-License-Identifier: Apache-2.0
// Shell completion for the tool's command lines.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace attnbias {

// Returns the script that completes command lines in "bash", "zsh" or "fish".
absl::string_view CompletionScript(absl::string_view shell);

// Returns the completions for the last of `words`, the nonempty list of arguments up to the cursor.
// Returns nullopt if the shell should complete file names.
std::optional<std::vector<std::string>> Completions(const CLI::App& app,
                                                    std::vector<std::string> words);

}  // namespace attnbias
