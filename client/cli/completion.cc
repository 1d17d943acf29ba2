// SPDX-License-Identifier: Apache-2.0
#include "client/cli/completion.h"

#include <glob.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/spec_fields.h"

namespace attnbias {
namespace {

using Words = std::vector<std::string>;

// Readline splits words at "=", ":" and "@" and replaces only $2, the end of the word.
constexpr absl::string_view kBash = R"sh(_attnbias() {
  local match reply words
  read -ra words <<<"${COMP_LINE:0:COMP_POINT}."
  words[-1]=${words[-1]%.}
  reply=$(attnbias __complete "${words[@]:1}" 2>/dev/null) || compopt -o default
  COMPREPLY=()
  while IFS= read -r match && [[ $match ]]; do
    printf -v match %q "${match#"${words[-1]%"$2"}"}"
    COMPREPLY+=("$match")
  done <<<"$reply"
  [[ ${COMPREPLY[0]} != *[=:@/] ]] || compopt -o nospace
}
complete -F _attnbias attnbias
)sh";

constexpr absl::string_view kZsh = R"sh(_attnbias() {
  local -a reply
  reply=(${(f)"$(attnbias __complete "${(@Q)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)"}) ||
    { compset -P '*='; _files; return }
  compadd -S '' -- ${(M)reply:#*[=:@/]}
  compadd -- ${reply:#*[=:@/]}
}
autoload -U +X compinit && compinit
compdef _attnbias attnbias
)sh";

constexpr absl::string_view kFish = R"sh(function __attnbias
  set -l words (commandline -opc) (commandline -ct)
  attnbias __complete $words[2..] 2>/dev/null; or __fish_complete_path $words[-1]
end
complete -c attnbias -f -a '(__attnbias)'
)sh";

Words WithPrefix(const std::string& prefix, Words words) {
  for (std::string& word : words) word.insert(0, prefix);
  return words;
}

// Returns the files and folders whose paths start with `path`. Folders end in "/".
Words FilesAt(const std::string& path) {
  glob_t found = {};
  glob((path + "*").c_str(), GLOB_MARK, nullptr, &found);
  Words files(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return files;
}

// Returns the possible values of a field. `text` is the part typed so far.
Words ValuesOf(const google::protobuf::FieldDescriptor& field, const std::string& text) {
  if (field.enum_type() != nullptr) return ShortNames(*field.enum_type());
  if (field.cpp_type() == field.CPPTYPE_BOOL) return {"true", "false"};
  if (field.message_type() != v1::TableRef::descriptor()) return {};
  if (!absl::StartsWith(text, "@")) return {"@", "name:", "sha256:"};
  return WithPrefix("@", FilesAt(text.substr(1)));
}

// Returns "field=" for each field of an encoding or, if `text` already contains one of these,
// "field=value" for each value of that field.
Words AssignmentsOf(const std::string& encoding, const std::string& text) {
  const auto known = EncodingNamed(encoding);
  if (!known.ok()) return {};
  const size_t digit = text.find_first_of("0123456789");
  const auto index = absl::StrCat(".", digit == text.npos ? "0" : text.substr(digit, 1), ".");
  Words names;
  for (const Argument& argument : ArgumentsOf(*known)) {
    names.push_back(absl::StrReplaceAll(argument.name + "=", {{".N.", index}}));
    if (!absl::StartsWith(text, names.back())) continue;
    return WithPrefix(names.back(), ValuesOf(*argument.field, text.substr(names.back().size())));
  }
  return names;
}

}  // namespace

absl::string_view CompletionScript(absl::string_view shell) {
  return shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish;
}

std::optional<Words> Completions(const CLI::App& app, Words words) {
  std::string last = words.back();
  words.pop_back();
  std::string prefix;  // "--flag=", whose value is completed like a word of its own
  if (absl::StartsWith(last, "--") && absl::StrContains(last, "=")) {
    prefix = last.substr(0, last.find('=') + 1);
    last.erase(0, prefix.size());
    words.push_back(prefix.substr(0, prefix.size() - 1));
  }
  const CLI::App* command = &app;
  const CLI::Option* option = nullptr;  // takes the next word
  Words given;                          // positional arguments
  for (const std::string& word : words) {
    if (option != nullptr) {
      option = nullptr;
    } else if (absl::StartsWith(word, "-")) {
      option = command->get_option_no_throw(word);
      if (option == nullptr) option = app.get_option_no_throw(word);
      if (option != nullptr && option->get_items_expected_max() == 0) option = nullptr;
    } else if (command != &app) {
      given.push_back(word);
    } else {
      const auto is_named = [&](const CLI::App* each) { return each->get_name() == word; };
      for (const CLI::App* each : app.get_subcommands(is_named)) command = each;
    }
  }
  Words found;
  if (option == nullptr && absl::StartsWith(last, "-")) {
    for (const CLI::Option* each : command->get_options()) {
      if (!each->get_positional()) found.push_back(each->get_name());
    }
    if (command != &app && command->get_fallthrough()) {
      for (const CLI::Option* each : app.get_options()) {
        if (!absl::c_linear_search(found, each->get_name())) found.push_back(each->get_name());
      }
    }
  } else if (option == nullptr && command == &app) {
    for (const CLI::App* each : app.get_subcommands(nullptr)) found.push_back(each->get_name());
  } else if (option == nullptr && prefix.empty()) {
    const auto is_positional = [](const CLI::Option* each) { return each->get_positional(); };
    const auto positional = command->get_options(is_positional);
    if (!positional.empty()) option = positional[std::min(given.size(), positional.size() - 1)];
  }
  if (option != nullptr) {
    const std::string type = option->get_type_name();
    if (type == "FILE" || type == "DIR") return std::nullopt;
    if (option->get_name() == "encoding") {
      for (const NamedEncoding& encoding : Encodings()) found.push_back(encoding.name);
    } else if (option->get_name() == "field") {
      found = AssignmentsOf(given[0], last);
    } else if (absl::StrContains(type, '|')) {
      found = absl::StrSplit(type, '|');
    }
  }
  std::erase_if(found, [&](const std::string& word) { return !absl::StartsWith(word, last); });
  return WithPrefix(prefix, found);
}

}  // namespace attnbias
