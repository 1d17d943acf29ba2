// SPDX-License-Identifier: Apache-2.0
#include "client/cli/completion.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/substitute.h"
#include "client/cli/spec_fields.h"

namespace attnbias {
namespace {

// A command before the cursor replaces the words, and an encoding adds fields.
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

// Lets zsh run completions of bash.
constexpr absl::string_view kZsh =
    "autoload -U +X compinit && compinit\n"
    "autoload -U +X bashcompinit && bashcompinit\n";

// Returns the names that the first positional of a command accepts, if these
// are encodings.
std::vector<std::string> EncodingsFor(const CLI::App& command) {
  std::vector<std::string> names;
  if (command.get_option_no_throw("encoding") == nullptr) return names;
  for (const NamedEncoding& encoding : Encodings()) {
    names.push_back(encoding.name);
  }
  return names;
}

std::string BashScript(const CLI::App& app) {
  std::vector<std::string> words = LongFlags(app);
  const std::string flags = absl::StrJoin(words, " ");
  std::string cases;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    words.push_back(command->get_name());
    std::vector<std::string> own = EncodingsFor(*command);
    for (std::string& flag : LongFlags(*command)) own.push_back(flag);
    absl::StrAppend(&cases, "      ", command->get_name(), ") words='", absl::StrJoin(own, " "),
                    " ", flags, "' ;;\n");
  }
  for (const NamedEncoding& encoding : Encodings()) {
    const std::vector<std::string> fields = SettableNames(ArgumentsOf(encoding));
    absl::StrAppend(&cases, "      ", encoding.name, ") words+=' ", absl::StrJoin(fields, "= "),
                    "=' ;;\n");
  }
  return absl::Substitute(kBash, absl::StrJoin(words, " "), cases);
}

std::string InQuotes(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

// Appends a line for each flag of `app`, offered under `condition`.
void AppendFishFlags(const CLI::App& app, absl::string_view condition, std::string* script) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const bool takes_value = option->get_expected_max() > 0;
      absl::StrAppend(script, "complete -c attnbias", condition, " -l ", name,
                      takes_value ? " -r" : "", " -d ", InQuotes(option->get_description()), "\n");
    }
  }
}

std::string FishScript(const CLI::App& app) {
  std::string script;
  AppendFishFlags(app, "", &script);
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    absl::StrAppend(&script, "complete -c attnbias -n __fish_use_subcommand -a ",
                    command->get_name(), " -d ", InQuotes(command->get_description()), "\n");
    const std::string condition =
        absl::StrCat(" -n '__fish_seen_subcommand_from ", command->get_name(), "'");
    AppendFishFlags(*command, condition, &script);
    const std::vector<std::string> encodings = EncodingsFor(*command);
    if (encodings.empty()) continue;
    absl::StrAppend(&script, "complete -c attnbias", condition, " -a ",
                    InQuotes(absl::StrJoin(encodings, " ")), "\n");
  }
  return script;
}

}  // namespace

std::vector<std::string> LongFlags(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      flags.push_back(absl::StrCat("--", name));
    }
  }
  return flags;
}

std::string CompletionScript(const CLI::App& app, absl::string_view shell) {
  if (shell == "fish") return FishScript(app);
  return absl::StrCat(shell == "zsh" ? kZsh : "", BashScript(app));
}

}  // namespace attnbias
