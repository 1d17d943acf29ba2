// SPDX-License-Identifier: Apache-2.0
#include "client/cli/completion.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "client/cli/spec_fields.h"

namespace attnbias {
namespace {

// A command before the cursor replaces the suggested words, and an encoding adds its fields.
constexpr absl::string_view kBash = R"(_attnbias() {
  local word words='$0'
  for word in "$${COMP_WORDS[@]:1:$$((COMP_CWORD - 1))}"; do
    case $$word in
$1    esac
  done
  COMPREPLY=($$(compgen -W "$$words" -- "$${COMP_WORDS[COMP_CWORD]}"))
  [[ $${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
}
complete -o default -F _attnbias attnbias
)";

// Lets zsh run bash completions.
constexpr absl::string_view kZsh =
    "autoload -U +X compinit && compinit\n"
    "autoload -U +X bashcompinit && bashcompinit\n";

// Words that may follow a command or an encoding, keyed by its name.
using Words = std::vector<std::pair<std::string, std::string>>;

// Returns the long flags of `app`, each after a space.
std::string Flags(const CLI::App& app) {
  std::string flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) absl::StrAppend(&flags, " --", name);
  }
  return flags;
}

std::string BashScript(const std::string& first, const Words& commands, const Words& encodings) {
  std::string cases;
  for (const auto& [name, words] : commands) {
    absl::StrAppend(&cases, "      ", name, ") words='", words, "' ;;\n");
  }
  for (const auto& [name, words] : encodings) {
    absl::StrAppend(&cases, "      ", name, ") words+=' ", words, "' ;;\n");
  }
  return absl::Substitute(kBash, first, cases);
}

std::string FishScript(const std::string& first, const Words& commands, const Words& encodings) {
  std::string script =
      absl::StrCat("complete -c attnbias -n __fish_use_subcommand -a '", first, "'\n");
  for (const Words& after : {commands, encodings}) {
    for (const auto& [name, words] : after) {
      absl::StrAppend(&script, "complete -c attnbias -n '__fish_seen_subcommand_from ", name,
                      "' -a '", words, "'\n");
    }
  }
  return script;
}

}  // namespace

std::string CompletionScript(const CLI::App& app, absl::string_view shell) {
  Words encodings;
  std::string names;
  for (const NamedEncoding& encoding : Encodings()) {
    const auto add_name = [](std::string* text, const Argument& each) { *text += each.name; };
    absl::StrAppend(&names, " ", encoding.name);
    encodings.emplace_back(encoding.name,
                           absl::StrCat(absl::StrJoin(ArgumentsOf(encoding), "= ", add_name), "="));
  }
  const std::string flags = Flags(app);
  std::string first = flags;
  Words commands;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    const bool takes_encoding = command->get_option_no_throw("encoding") != nullptr;
    absl::StrAppend(&first, " ", command->get_name());
    commands.emplace_back(command->get_name(),
                          absl::StrCat(takes_encoding ? names : "", Flags(*command), flags));
  }
  if (shell == "fish") return FishScript(first, commands, encodings);
  return absl::StrCat(shell == "zsh" ? kZsh : "", BashScript(first, commands, encodings));
}

}  // namespace attnbias
