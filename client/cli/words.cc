// SPDX-License-Identifier: Apache-2.0
#include "client/cli/words.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "attnbias/v1/service.pb.h"
#include "client/cli/spec_fields.h"

namespace attnbias {
namespace {

// A message is translated by this table alone; the longest entry that fits goes
// first.
constexpr auto kWords =
    std::to_array<std::pair<absl::string_view, absl::string_view>>({
        {"spec:", "request:"},
        {"spec.", ""},
        {"spec.extent:", "request:"},
        {"spec.grid.", "--"},
        {"spec.output.data_type", "--dtype"},
        {"spec.output.form", "--form"},
        {"spec.output.mask:", "--causal, --window-left or --window-right:"},
        {"spec.output.mask.fill_lowest", "--fill"},
        {"spec.output.mask.fill_value", "--fill"},
        {"spec.output.mask.window_left", "--window-left"},
        {"spec.output.mask.window_right", "--window-right"},
        {"spec.output.scale", "--scale"},
        {"spec.output.values", "--values"},
        {"with form ", "with --form "},
        {"want form ", "want --form "},
        {"with values ", "with --values "},
        {"or values ", "or --values "},
        {"spec.pair.", "--"},
        {"alignment", "--align"},
        {"spec.pair.alignment", "--align"},
        {"key_length", "--keys"},
        {"spec.pair.key_length", "--keys"},
        {"spec.pair.key_positions", "--key-position-ids"},
        {"spec.pair.key_positions.positions", "--key-position-ids"},
        {"query_length", "--queries"},
        {"spec.pair.query_length", "--queries"},
        {"query_offset", "--query-offset"},
        {"a query_offset", "--query-offset"},
        {"spec.pair.query_offset", "--query-offset"},
        {"spec.pair.query_positions", "--query-position-ids"},
        {"spec.pair.query_positions.positions", "--query-position-ids"},
        {"spec.table.position_ids", "--position-ids"},
        {"target: got", "--server: got"},
        {"streams: got", "--streams: got"},
        {"ClientOptions::target", "--server HOST:PORT"},
        {"ClientOptions::tls", "--tls"},
        {"ClientOptions::token_file", "--token-file FILE"},
        {"TlsOptions::ca_file", "--tls-ca FILE"},
        {"TlsOptions::cert_file and key_file",
         "--tls-cert FILE and --tls-key FILE"},
        {"TlsOptions::server_name", "--tls-server-name NAME"},
        {"tls.ca_file", "--tls-ca"},
        {"tls.cert_file", "--tls-cert"},
        {"tls.key_file", "--tls-key"},
        {"token_file:", "--token-file:"},
        {"].positions[", "]["},
        {"got no source", "not set"},
        {"name, inline_table or sha256", kTableForms},
        {"spec.table.positions", "--positions"},
        {"spec.table: got both of positions and position_ids",
         "--positions: got --position-ids beside it"},
        {".inline_table", ""},
        {".inline_table.data:", ":"},
        {".name:", ":"},
        {".sha256:", ":"},
        {"ListTables has", "`attnbias tables` lists"},
        {"Received message larger than max",
         "too large a message; if it is the request, have the server mount its "
         "tables (--tables)"},
    });

// Of all enums, "dense" and so on.
std::set<std::string> Values() {
  std::set<std::string> values;
  for (const auto* file : {v1::Form_descriptor()->file(),
                           v1::SinusoidalLayout_descriptor()->file()}) {
    for (int i = 0; i < file->enum_type_count(); ++i) {
      for (const std::string& name : ShortNames(*file->enum_type(i))) {
        values.insert(name);
      }
    }
  }
  return values;
}

bool InName(char c) { return absl::ascii_isalnum(c) || c == '_'; }

std::string WithLowerCaseValues(absl::string_view text) {
  static const auto* const values = new std::set<std::string>(Values());
  std::string result;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    end = begin + 1;
    if (InName(text[begin])) {
      while (end < text.size() && InName(text[end])) ++end;
    }
    const std::string word(text.substr(begin, end - begin));
    const std::string lower = absl::AsciiStrToLower(word);
    const bool is_value =
        word == absl::AsciiStrToUpper(word) && values->contains(lower);
    result += is_value ? lower : word;
  }
  return result;
}

// A table's layout is an argument of its own, named after the table's.
std::string WithLayoutNamed(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ": got shape ");
  const std::string table = parts[0].substr(parts[0].find('.') + 1);
  return absl::StrReplaceAll(
      text, {{"see the table's layout",
              absl::StrCat("see ", table,
                           "_layout, buckets_heads or heads_buckets")}});
}

}  // namespace

// What stands in quotes is the caller's own. An apostrophe follows a letter.
std::string InFlags(absl::string_view message) {
  std::string result;
  while (!message.empty()) {
    size_t quoted = message.find('\'');
    while (quoted != message.npos && quoted != 0 &&
           InName(message[quoted - 1])) {
      quoted = message.find('\'', quoted + 1);
    }
    quoted = std::min(quoted, message.size());
    result += WithLowerCaseValues(
        absl::StrReplaceAll(message.substr(0, quoted), kWords));
    const size_t last =
        std::min(message.find('\'', quoted + 1), message.size());
    const size_t size = std::min(last + 1, message.size()) - quoted;
    result += std::string(message.substr(quoted, size));
    message.remove_prefix(quoted + size);
  }
  return WithLayoutNamed(result);
}

}  // namespace attnbias
