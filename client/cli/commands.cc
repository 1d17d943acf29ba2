// SPDX-License-Identifier: Apache-2.0
#include "client/cli/commands.h"

#include <google/protobuf/descriptor.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "attnbias/client.h"
#include "client/cli/completion.h"
#include "client/cli/heat_map.h"
#include "client/cli/report.h"
#include "client/cli/sample.h"
#include "client/cli/spec_fields.h"
#include "client/cli/table_file.h"

namespace attnbias {
namespace {

using google::protobuf::FieldDescriptor;

class Commands;
// Runs a command and returns the exit code.
using Command = int (Commands::*)() const;

struct Settings {
  Command command = nullptr;
  std::string server = "localhost";
  double timeout_seconds = 300;
  double connect_timeout_seconds = 10;
  std::optional<bool> tls;
  TlsOptions tls_options;
  std::string token_file;
  std::string health_service;
  TensorOptions tensor;
  std::string out;
  std::string part;
  std::optional<int64_t> head;
  std::string png;
  // Names of the encodings to list; if empty, lists all of them.
  std::vector<std::string> names;
  std::string shell;
  bool json = false;
};

// Bounds the response for a picture. A picture needs only samples, but if an encoding accepts no
// position lists, the server sends the whole tensor.
constexpr int64_t kMaxDrawnBytes = 64 << 20;
// Size of a PNG image intended for a page.
constexpr Canvas kPngCanvas = {
    .most = {.rows = 1024, .columns = 1024}, .pixel_height = 1, .enlarged_to = 512};

class Commands {
 public:
  Commands(const CLI::App& app, const Settings& settings, Terminal terminal)
      : app_(app), settings_(settings), terminal_(terminal) {}

  int Completion() const {
    terminal_.out << CompletionScript(settings_.shell);
    return kExitOk;
  }

  int OfPython() const {
    const std::string name = app_.get_subcommands()[0]->get_name();
    return Usage(absl::InvalidArgumentError(
        absl::StrCat(name, ": use python -m attnbias ", name, ", from the Python package")));
  }

  int Health() const {
    const auto client = Connect();
    if (!client.ok()) return Usage(client.status());
    const auto health = client->CheckHealth(settings_.health_service);
    if (!health.ok()) return Failed(health.status());
    const bool is_serving = *health == attnbias::Health::kServing;
    const char* const status = is_serving                                 ? "SERVING"
                               : *health == attnbias::Health::kNotServing ? "NOT_SERVING"
                                                                          : "UNKNOWN";
    terminal_.out << (settings_.json ? absl::StrCat("{\n \"status\": \"", status, "\"\n}\n")
                                     : absl::StrCat(status, "\n"));
    return is_serving ? kExitOk : kExitFailed;
  }

  int Info() const {
    const auto client = Connect();
    if (!client.ok()) return Usage(client.status());
    const auto info = client->ServerInfo();
    if (!info.ok()) return Failed(info.status());
    terminal_.out << (settings_.json ? AsJson(*info) : InfoReport(*info));
    return kExitOk;
  }

  int List() const {
    std::vector<NamedEncoding> encodings;
    for (const std::string& name : settings_.names) {
      const auto encoding = EncodingNamed(name);
      if (!encoding.ok()) return Usage(encoding.status());
      encodings.push_back(*encoding);
    }
    if (encodings.empty()) encodings = Encodings();
    terminal_.out << (settings_.json ? EncodingListAsJson(encodings) : EncodingList(encodings));
    return kExitOk;
  }

  int Tables() const {
    const auto client = Connect();
    if (!client.ok()) return Usage(client.status());
    const auto tables = client->ListTables();
    if (!tables.ok()) return Failed(tables.status());
    if (tables->empty()) {
      terminal_.err << "attnbias: no tables found; the server has mounted none, or "
                       "its policy hides them\n";
    }
    if (settings_.json) {
      v1::ListTablesResponse list;
      list.mutable_tables()->Assign(tables->begin(), tables->end());
      terminal_.out << AsJson(list);
      return kExitOk;
    }
    for (const v1::TableInfo& table : *tables) {
      terminal_.out << TableReport(table);
    }
    return kExitOk;
  }

  int Describe() const {
    const auto spec = BuildSpec(settings_.tensor);
    if (!spec.ok()) return Usage(spec.status());
    const auto client = Connect();
    if (!client.ok()) return Usage(client.status());
    const auto header = client->Describe(*spec);
    if (!header.ok()) return Failed(header.status());
    terminal_.out << (settings_.json ? AsJson(*header) : DescribeReport(*header));
    return kExitOk;
  }

  int Show() const {
    const auto spec = BuildSpec(settings_.tensor);
    if (!spec.ok()) return Usage(spec.status());
    const auto client = Connect(kMaxDrawnBytes);
    if (!client.ok()) return Usage(client.status());
    // Describes the whole tensor without a mask, since key rows accept a mask only in dense form.
    v1::TensorSpec unmasked = *spec;
    unmasked.mutable_output()->clear_mask();
    const auto whole = client->Describe(unmasked);
    if (!whole.ok()) return Failed(whole.status());
    const auto matrix = MatrixOf(*whole, settings_.head, settings_.part);
    if (!matrix.ok()) return Usage(matrix.status());
    const Canvas canvas =
        settings_.png.empty() ? CanvasOf(terminal_.screen, matrix->label_width) : kPngCanvas;
    const Size pixels = Fit(matrix->size, canvas, matrix->square);
    const Size shown = {.rows = std::min(pixels.rows, matrix->size.rows),
                        .columns = std::min(pixels.columns, matrix->size.columns)};
    absl::StatusOr<Tensor> tensor = absl::InvalidArgumentError("");
    for (const v1::TensorSpec& request : RequestsFor(*spec, *whole, *matrix, shown)) {
      tensor = client->Get(request);
      if (!absl::IsInvalidArgument(tensor.status())) break;
    }
    if (absl::IsResourceExhausted(tensor.status())) {
      return Failed(absl::ResourceExhaustedError(
          absl::StrCat(tensor.status().message(),
                       "; draw a window: --queries A:B, --keys A:B or --positions A:B")));
    }
    if (!tensor.ok()) return Failed(tensor.status());
    const auto map = HeatMapOf(settings_.tensor.encoding, *tensor, *whole, *matrix, pixels);
    if (!map.ok()) return Failed(map.status());
    if (settings_.png.empty()) {
      terminal_.out << DrawText(*map, terminal_.screen);
      return kExitOk;
    }
    if (const absl::Status written = WritePng(*map, settings_.png); !written.ok()) {
      return Usage(written, kExitFailed);
    }
    terminal_.out << map->title << "\n" << LegendText(*map, Colors::k24Bit) << "\n";
    return kExitOk;
  }

  int Get() const {
    const auto spec = BuildSpec(settings_.tensor);
    if (!spec.ok()) return Usage(spec.status());
    if (absl::EndsWith(settings_.out, ".npy") && spec->output().data_type() == v1::DATA_TYPE_BF16) {
      return Usage(
          absl::InvalidArgumentError("--out: .npy has no bf16; write a .safetensors file"));
    }
    if (settings_.json && settings_.out == kStandardOutput) {
      return Usage(absl::InvalidArgumentError(
          "--json: given together with --out -, which writes raw bytes; want --out "
          "FILE, or describe --json"));
    }
    const auto client = Connect();
    if (!client.ok()) return Usage(client.status());
    const auto tensor = client->Get(*spec);
    if (!tensor.ok()) return Failed(tensor.status());
    return Deliver(*tensor);
  }

 private:
  absl::StatusOr<Client> Connect(
      int64_t max_tensor_bytes = ClientOptions().max_tensor_bytes) const {
    return Client::Create({.target = settings_.server,
                           .timeout = absl::Seconds(settings_.timeout_seconds),
                           .connect_timeout = absl::Seconds(settings_.connect_timeout_seconds),
                           .max_tensor_bytes = max_tensor_bytes,
                           .tls = Tls(),
                           .token_file = settings_.token_file.empty()
                                             ? std::nullopt
                                             : std::optional(settings_.token_file),
                           .on_retry = [this, told = false](const absl::Status& error) mutable {
                             if (std::exchange(told, true)) return;
                             terminal_.err << "attnbias: " << error.message() << "; trying "
                                           << settings_.server << " again\n";
                           }});
  }

  TlsOptions Tls() const {
    TlsOptions tls = settings_.tls_options;
    tls.enabled = settings_.tls.value_or(
        !absl::StrCat(tls.ca_file, tls.cert_file, tls.key_file, tls.server_name).empty());
    return tls;
  }

  int Deliver(const Tensor& tensor) const {
    if (settings_.out == kStandardOutput) {
      const auto bytes = BareBytes(tensor, settings_.part);
      if (!bytes.ok()) return Usage(bytes.status(), kExitFailed);
      terminal_.out.write(reinterpret_cast<const char*>(bytes->data()),
                          static_cast<std::streamsize>(bytes->size()));
      return kExitOk;
    }
    if (settings_.out.empty() && !settings_.json) {
      for (int i = 0; i < tensor.header().parts_size(); ++i) {
        if (tensor.header().parts_size() > 1) {
          terminal_.out << tensor.header().parts(i).name() << ":\n";
        }
        terminal_.out << PreviewNumbers(tensor.header().parts(i), tensor.part(i),
                                        HeadsOf(tensor.header().resolved_spec()));
      }
    } else if (!settings_.out.empty()) {
      const absl::Status written = WriteTensorFile(tensor, settings_.out, settings_.part);
      if (!written.ok()) return Usage(written, kExitFailed);
    }
    terminal_.out << (settings_.json ? AsJson(tensor.header()) : HeaderReport(tensor.header()));
    return kExitOk;
  }

  int Failed(const absl::Status& status) const {
    terminal_.err << "attnbias: " << ErrorReport(status);
    return kExitFailed;
  }

  int Usage(const absl::Status& status, int code = kExitUsage) const {
    terminal_.err << "attnbias: " << status.message() << "\n";
    return code;
  }

  const CLI::App& app_;
  const Settings& settings_;
  const Terminal terminal_;
};

// Flag descriptions for the help.
constexpr std::pair<absl::string_view, absl::string_view> kHelp[] = {
    {"positions", "Consecutive positions; N is 0:N"},
    {"position_ids", "Positions, in the order given; repeat for each axis"},
    {"grid", "Lengths of a grid, one for each axis; selects all its tokens"},
    {"grid_offset", "Position of the first token on each axis; 0 if not given"},
    {"query_length", "Full length"},
    {"key_length", "Full length"},
    {"alignment", "start: query 0 aligns with key 0; end: the last query with the last key"},
    {"query_offset", "Position of query 0"},
    {"queries", "Window within the full length, or within a grid's tokens; N is 0:N"},
    {"keys", "Like --queries"},
    {"heads", "Like --queries, but for heads"},
    {"query_stride", "Every n-th token along each axis is a query; 1 if not given"},
    {"query_positions", "Positions instead of --query-length"},
    {"key_positions", "Positions instead of --key-length"},
    {"scale", "Factor applied before the result is rounded"},
    {"causal", "Masks keys to the right of the query"},
    {"window_left", "Masks keys more than N to the left of the query"},
    {"window_right", "Masks keys more than N to the right of the query"},
    {"fill_value", "Value of masked elements; -inf if not given"},
    {"fill_lowest", "Fills masked elements with the data type's lowest number"},
};

std::string HelpOf(absl::string_view field) {
  const auto help = absl::c_find_if(kHelp, [&](const auto& entry) { return entry.first == field; });
  return help == std::end(kHelp) ? "" : std::string(help->second);
}

std::string PlaceholderOf(const FieldDescriptor& field) {
  if (field.enum_type() != nullptr) {
    return absl::StrJoin(ShortNames(*field.enum_type()), "|");
  }
  if (field.message_type() == v1::Range::descriptor()) return "A:B";
  if (field.is_repeated() || field.message_type() != nullptr) return "N,N,...";
  return field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ? "X" : "N";
}

// Adds arguments for an encoding and its fields, and flags for the fields of the extents, the
// output and its mask. The flags for queries and keys also select windows of a grid.
void AddTensorArguments(CLI::App* command, TensorOptions* tensor, bool is_whole) {
  command
      ->add_option("encoding", tensor->encoding,
                   "Name of an encoding, as listed by `attnbias list`")
      ->required();
  command
      ->add_option("field", tensor->fields,
                   absl::StrCat("Its fields: dim=512, columns=sines_cosines, "
                                "slopes=1,0.5; a table is ",
                                kTableForms))
      ->type_name("NAME=VALUE");
  for (const auto& [group, type] :
       {std::pair("Extent of a table", v1::TableExtent::descriptor()),
        std::pair("Extent of queries and keys", v1::PairExtent::descriptor()),
        std::pair("Extent of tokens in a grid", v1::GridExtent::descriptor()),
        std::pair("Output", v1::Output::descriptor()), std::pair("Mask", v1::Mask::descriptor())}) {
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor& field = *type->field(i);
      const std::string name(field.name());
      // A picture shows one head and needs no form.
      const bool fits = is_whole || (name != "heads" && name != "form");
      if (!fits || field.message_type() == v1::Mask::descriptor()) continue;
      if (command->get_option_no_throw(FlagOf(name)) != nullptr) continue;
      std::vector<std::string>& values = tensor->flags[name];
      CLI::Option* flag;
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
        flag = command->add_flag(FlagOf(name), values, HelpOf(name));
      } else {
        flag = command->add_option(FlagOf(name), values, HelpOf(name))
                   ->type_name(PlaceholderOf(field))
                   ->allow_extra_args(false);
        if (field.message_type() == nullptr || !field.is_repeated()) {
          flag->expected(1);
        }
      }
      flag->group(group);
    }
  }
}

void AddSecurityOptions(CLI::App* app, Settings* settings) {
  const std::string security = "Security";
  app->add_flag_function(
         "--tls", [settings](int64_t count) { settings->tls = count > 0; },
         "TLS with the CA certificates that the system trusts")
      ->envname("ATTNBIAS_CLIENT_TLS")
      ->group(security);
  const auto add = [&](const std::string& name, std::string* value, const std::string& variable,
                       const std::string& description) {
    return app->add_option(name, *value, description)
        ->envname(variable)
        ->type_name("FILE")
        ->group(security);
  };
  TlsOptions& tls = settings->tls_options;
  add("--tls-ca", &tls.ca_file, "ATTNBIAS_CLIENT_TLS_CA",
      "TLS with the CA certificates in a PEM file");
  add("--tls-cert", &tls.cert_file, "ATTNBIAS_CLIENT_TLS_CERT",
      "TLS with the client certificate in a PEM file");
  add("--tls-key", &tls.key_file, "ATTNBIAS_CLIENT_TLS_KEY",
      "Private key of the client certificate, in a PEM file");
  add("--tls-server-name", &tls.server_name, "ATTNBIAS_CLIENT_TLS_SERVER_NAME",
      "Name to expect in the server's certificate instead of the target's; enables TLS")
      ->type_name("NAME");
  add("--token-file", &settings->token_file, "ATTNBIAS_CLIENT_TOKEN_FILE",
      "File with a bearer token that identifies the caller");
}

void AddConnectionOptions(CLI::App* app, Settings* settings) {
  app->add_option("--server", settings->server, "Address of the server; the default port is 50051")
      ->envname("ATTNBIAS_SERVER")
      ->capture_default_str()
      ->type_name("HOST[:PORT]");
  const auto is_positive = [](const std::string& text) -> std::string {
    double seconds = 0;
    if (absl::SimpleAtod(text, &seconds) && seconds > 0) return "";
    return absl::StrCat("got ", text, ", want a positive number of seconds");
  };
  app->add_option("--timeout", settings->timeout_seconds,
                  "Time limit for the whole call, in seconds")
      ->check(is_positive)
      ->capture_default_str();
  app->add_option("--connect-timeout", settings->connect_timeout_seconds,
                  "Time limit for connecting, in seconds")
      ->check(is_positive)
      ->capture_default_str();
  AddSecurityOptions(app, settings);
}

void AddCommands(CLI::App* app, Settings* settings) {
  AddConnectionOptions(app, settings);
  app->set_version_flag("--version", "attnbias " ATTNBIAS_VERSION);
  app->require_subcommand(1);
  app->fallthrough();

  const auto add = [&](const std::string& name, const std::string& description, Command command) {
    return app->add_subcommand(name, description)->callback([=] { settings->command = command; });
  };
  CLI::App* health =
      add("health", "Exits with 0 if and only if the server is serving", &Commands::Health);
  health->add_option("service", settings->health_service,
                     "Service to check instead of the whole server");
  CLI::App* get = add("get", "Fetches a tensor into a file or prints its corners", &Commands::Get);
  AddTensorArguments(get, &settings->tensor, /*is_whole=*/true);
  get->add_option("--out", settings->out,
                  "FILE.npy, FILE.safetensors, or - for the raw bytes on "
                  "standard output")
      ->check([](const std::string& name) {
        const bool fits = name == kStandardOutput || absl::EndsWith(name, ".npy") ||
                          absl::EndsWith(name, ".safetensors");
        return fits ? ""
                    : absl::StrCat("got ", name,
                                   ", want a name ending in .npy or .safetensors, or -");
      })
      ->type_name("FILE");
  get->add_option("--part", settings->part, "Part to write to FILE.npy or -");
  CLI::App* describe = add("describe", "Describes what get would fetch", &Commands::Describe);
  AddTensorArguments(describe, &settings->tensor, /*is_whole=*/true);
  CLI::App* show =
      add("show", "Draws a tensor as a heat map, in the terminal or to a file", &Commands::Show);
  AddTensorArguments(show, &settings->tensor, /*is_whole=*/false);
  show->add_option("--head", settings->head, "Head to draw; 0 if not given")
      ->check(CLI::NonNegativeNumber);
  show->add_option("--part", settings->part, "Part to draw; the first if not given");
  show->add_option("--png", settings->png, "FILE.png to write instead of drawing in the terminal")
      ->check([](const std::string& name) {
        return absl::EndsWith(name, ".png")
                   ? ""
                   : absl::StrCat("got ", name, ", want a name ending in .png");
      })
      ->type_name("FILE");
  CLI::App* info =
      add("info", "Prints the server's version, encodings and limits", &Commands::Info);
  CLI::App* list =
      add("list", "Lists encodings and their fields; needs no server", &Commands::List);
  list->add_option("encoding", settings->names, "Only these encodings");
  CLI::App* tables = add("tables", "Lists the server's learned tables", &Commands::Tables);
  for (CLI::App* command : {health, info, list, tables, describe, get}) {
    command->add_flag("--json", settings->json,
                      "Prints JSON with the API's field names; for get, without "
                      "the numbers");
  }
  CLI::App* completion =
      add("completion", "Prints a shell script that completes commands and flags",
          &Commands::Completion);
  completion->add_option("shell", settings->shell, "Shell to generate the script for")
      ->required()
      ->type_name("bash|zsh|fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}).description(""));
  // Commands that the Python package provides, for help and completion.
  for (const auto& [name, description] :
       {std::pair("export", "fills a cache with what a model needs"),
        std::pair("cache", "shows, verifies or clears a cache")}) {
    CLI::App* command = add(name, absl::StrCat("python -m attnbias ", name, ": ", description),
                            &Commands::OfPython);
    command->prefix_command()->fallthrough(false);
    command->add_option("--cache")->type_name("DIR");
  }
  app->get_subcommand("cache")->add_option("action")->type_name("ls|verify|clear");
  CLI::App* of_export = app->get_subcommand("export");
  of_export->add_option("--config")->type_name("FILE");
  of_export->add_option("--max-length")->type_name("N");
  of_export->add_option("--data-type")->type_name("f64|f32|f16|bf16");
  // Not stored in `settings`: CLI11 would then let environment variables override given flags.
  for (const CLI::Option* option : app->get_options()) {
    if (option->get_name() != "--server" && option->get_group() != "Security") continue;
    of_export->add_option(option->get_name())
        ->type_name(option->get_type_name())
        ->expected(option->get_items_expected_max());
  }
}

}  // namespace

int RunTool(const std::vector<std::string>& arguments, Terminal terminal) {
  Settings settings;
  CLI::App app("Fetches position tensors of Transformer models from a server.", "attnbias");
  AddCommands(&app, &settings);
  if (arguments.size() > 1 && arguments[0] == "__complete") {
    const auto words = Completions(app, {arguments.begin() + 1, arguments.end()});
    if (words.has_value()) terminal.out << absl::StrJoin(*words, "\n") << "\n";
    return words.has_value() ? kExitOk : kExitFailed;
  }
  try {
    // CLI11 consumes its arguments from the back.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    // CLI11 throws on --help before it checks for unknown arguments.
    const std::vector<std::string> unknown = app.remaining(true);
    if (unknown.empty() && error.get_exit_code() == 0) {
      app.exit(error, terminal.out);
      return kExitOk;
    }
    terminal.err << "attnbias: "
                 << (unknown.empty()
                         ? error.what()
                         : absl::StrCat(absl::StrJoin(unknown, " "), ": no such argument"))
                 << "; see --help\n";
    return kExitUsage;
  }
  const Commands runner(app, settings, terminal);
  const int code = (runner.*settings.command)();
  if (terminal.out.flush()) return code;
  terminal.err << "attnbias: standard output: cannot write\n";
  return kExitFailed;
}

}  // namespace attnbias
