// SPDX-License-Identifier: Apache-2.0
#include "server/run/config.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/file/regular_file.h"
#include "server/run/machine_limits.h"
#include "server/run/transport.h"

namespace attnbias {
namespace {

constexpr int kExitInvalid = 2;
constexpr int64_t kMaxConfigBytes = int64_t{1} << 20;
constexpr absl::string_view kPrefix = "ATTNBIAS_";
// Variables for the clients and the command-line tool.
constexpr absl::string_view kVariablesOfOthers[] = {
    "ATTNBIAS_SERVER",           "ATTNBIAS_SERVER_BINARY",          "ATTNBIAS_CACHE_DIR",
    "ATTNBIAS_CLIENT_TLS",       "ATTNBIAS_CLIENT_TLS_CA",          "ATTNBIAS_CLIENT_TLS_CERT",
    "ATTNBIAS_CLIENT_TLS_KEY",   "ATTNBIAS_CLIENT_TLS_SERVER_NAME", "ATTNBIAS_CLIENT_TOKEN",
    "ATTNBIAS_CLIENT_TOKEN_FILE"};

// Adds a flag that may be repeated, or given once with comma-separated values.
CLI::Option* AddList(CLI::App& app, const std::string& name, std::vector<std::string>& target,
                     const std::string& type_name, const std::string& description) {
  CLI::Option* option = app.add_option(name, target, description);
  option->multi_option_policy(CLI::MultiOptionPolicy::Throw)
      ->default_str(absl::StrJoin(target, ","));
  return option->delimiter(',')->allow_extra_args(false)->type_name(type_name);
}

// Adds a flag that is given as --name, --name=true or --name=false.
void AddSwitch(CLI::App& app, const std::string& name, bool& target,
               const std::string& description) {
  app.add_flag(name, target, description)->default_str(target ? "true" : "false");
}

// Adds a flag parsed by `parse(text, &target)`. If that returns false, the error states `want`.
template <typename Value, typename Parse>
CLI::Option* AddParsed(CLI::App& app, const std::string& name, Value& target,
                       const std::string& default_text, const std::string& want, Parse parse,
                       const std::string& description) {
  const auto set = [name, want, parse, &target](const std::string& text) {
    if (parse(text, &target)) return;
    throw CLI::ValidationError(name, absl::StrCat("got '", text, "', want ", want));
  };
  return app.add_option_function<std::string>(name, set, description)->default_str(default_text);
}

void AddBytes(CLI::App& app, const std::string& name, int64_t& target, int64_t least,
              const std::string& description) {
  const auto parse = [least](std::string text, int64_t* bytes) {
    try {
      CLI::AsSizeValue(/*kb_is_1000=*/false)(text);
    } catch (const CLI::ValidationError&) {
      return false;
    }
    return absl::SimpleAtoi(text, bytes) && *bytes >= least;
  };
  AddParsed(app, name, target, absl::StrCat(target),
            absl::StrCat("an integer of at least ", least,
                         ", in bytes or with KiB, MiB, GiB or TiB, such as 512MiB"),
            parse, description)
      ->type_name("SIZE");
}

void AddCount(CLI::App& app, const std::string& name, int& target, int most,
              const std::string& description) {
  const auto parse = [most](const std::string& text, int* count) {
    return absl::SimpleAtoi(text, count) && 1 <= *count && *count <= most;
  };
  AddParsed(app, name, target, absl::StrCat(target), absl::StrCat("an integer in [1, ", most, "]"),
            parse, description)
      ->type_name("INT");
}

void AddChoice(CLI::App& app, const std::string& name, std::string& target,
               const std::vector<std::string>& choices, const std::string& description) {
  const auto parse = [choices](const std::string& text, std::string* choice) {
    *choice = text;
    return absl::c_linear_search(choices, text);
  };
  AddParsed(app, name, target, target, absl::StrCat("one of ", absl::StrJoin(choices, ", ")), parse,
            description)
      ->type_name(absl::StrJoin(choices, "|"));
}

void AddDuration(CLI::App& app, const std::string& name, absl::Duration& target,
                 absl::Duration least, const std::string& description) {
  const auto parse = [least](const std::string& text, absl::Duration* duration) {
    return absl::ParseDuration(text, duration) && *duration >= least &&
           *duration <= absl::Hours(24);
  };
  const std::string want =
      absl::StrCat("a duration from ", absl::FormatDuration(least), " to 24h, such as 30s");
  AddParsed(app, name, target, absl::FormatDuration(target), want, parse, description)
      ->type_name("DURATION");
}

void AddSocketMode(CLI::App& app, mode_t& target) {
  const auto parse = [](const std::string& text, mode_t* mode) {
    const bool is_octal = !text.empty() && text.size() <= 4 &&
                          text.find_first_not_of("01234567") == std::string::npos;
    if (is_octal) *mode = std::stoul(text, nullptr, 8);
    return is_octal && *mode <= 0777;
  };
  AddParsed(app, "--socket-mode", target, absl::StrFormat("%04o", target),
            "an octal mode from 0 to 0777, such as 0660", parse, "File mode of unix:PATH sockets")
      ->type_name("MODE");
}

// Returns a validator that accepts any text that `parse` accepts, and otherwise reports its error.
CLI::Validator Checked(absl::StatusOr<ListenAddress> (*parse)(std::string_view)) {
  return CLI::Validator(
      [parse](std::string& text) { return std::string(parse(text).status().message()); }, "");
}

void AddNetworkFlags(CLI::App& app, ServerConfig& config) {
  TransportOptions& transport = config.transport;
  AddList(app, "--listen", config.listen, "HOST:PORT|unix:PATH",
          "Address of the gRPC service; repeatable")
      ->check(Checked(&ParseListenAddress));
  app.add_option("--metrics-listen", config.metrics_listen, "Address of the Prometheus metrics")
      ->check(Checked(&ParseHostPort))
      ->type_name("HOST:PORT");
  AddSocketMode(app, transport.socket_mode);
  app.add_option("--probe-listen", config.probe_listen,
                 "Plaintext address that serves only the health service, for probes without TLS")
      ->check(Checked(&ParseHostPort))
      ->type_name("HOST:PORT");
  AddDuration(app, "--max-connection-age", transport.max_connection_age, absl::ZeroDuration(),
              "Maximum age of a connection; older ones close once their calls end; 0s: no limit");
  AddDuration(app, "--keepalive-time", transport.keepalive_time, absl::Seconds(1),
              "Time without data before a client is pinged");
  AddDuration(app, "--keepalive-timeout", transport.keepalive_timeout, absl::Seconds(1),
              "Time to wait for a ping reply before the connection is closed");
  AddCount(app, "--max-concurrent-streams", transport.max_concurrent_streams, 1000000,
           "Maximum concurrent calls on one connection");
  AddSwitch(app, "--reflection", transport.reflection, "Serve gRPC reflection, which grpcurl uses");
  AddSwitch(app, "--oip", config.oip,
            "Serve the Open Inference Protocol, for clients of Triton and KServe");
}

void AddAccessFlags(CLI::App& app, AccessFiles& files) {
  const auto add = [&app](const std::string& name, std::string& target,
                          const std::string& description) {
    app.add_option(name, target, description)->type_name("FILE");
  };
  add("--tls-cert", files.tls.certificate,
      "Certificate chain in PEM; enables TLS, except on unix:PATH");
  add("--tls-key", files.tls.key, "Private key of the certificate, in PEM");
  add("--tls-client-ca", files.tls.client_ca,
      "PEM file of CA certificates used to verify clients; clients then need a certificate or, "
      "with --tokens, a token");
  add("--tokens", files.tokens,
      "File with lines of the form NAME sha256:DIGEST; callers need one of these tokens or a "
      "client certificate");
  add("--policy", files.policy, "JSON file with the rights and limits of each caller");
}

void AddComputeFlags(CLI::App& app, ServerConfig& config) {
  AddBytes(
      app, "--memory-budget", config.memory_budget_bytes, 1,
      "Maximum total size of the tensors computed, cached and in flight; default: a quarter of "
      "the memory");
  AddBytes(app, "--max-tensor-bytes", config.max_tensor_bytes, 1,
           "Maximum size of a payload, in bytes");
  AddCount(app, "--threads", config.threads, 4096,
           "Number of compute threads; default: one per processor");
  app.add_option("--cpu-isa", config.cpu_isa,
                 "Instruction set of the kernels; default: the best that this CPU supports");
  AddChoice(app, "--backend", config.backend, {"auto", "cpu", "cuda"},
            "auto: use a CUDA device for results of at least --cuda-min-bytes; cuda: for "
            "everything it can compute; cpu: never");
  AddBytes(
      app, "--cuda-min-bytes", config.cuda_min_bytes, 0,
      "Minimum size, in bytes, of results computed on a CUDA device; with --backend auto, 0 means "
      "CPU only");
  app.add_option("--precompute", config.precompute,
                 "JSON file with an array of TensorSpec to cache before the server is ready");
}

void AddTableFlags(CLI::App& app, ServerConfig& config) {
  app.add_option("--tables", config.tables.folder,
                 "Folder of .safetensors files whose tensors are mounted as FILE:TENSOR")
      ->type_name("FOLDER");
  AddList(app, "--table", config.tables.tables, "NAME=FILE.safetensors:TENSOR",
          "Tensor to mount under a name; repeatable");
  AddList(app, "--checkpoint", config.tables.checkpoints, "NAME=FOLDER",
          "Transformers checkpoint whose position tables are mounted as NAME/PLACE; repeatable");
  AddDuration(app, "--tables-poll", config.tables_poll, absl::ZeroDuration(),
              "How often to check the table files for changes; 0s: never");
}

void AddLifecycleFlags(CLI::App& app, ServerConfig& config) {
  AddDuration(app, "--shutdown-delay", config.shutdown_delay, absl::ZeroDuration(),
              "Time between reporting NOT_SERVING and refusing new calls");
  AddDuration(app, "--drain-grace", config.drain_grace, absl::ZeroDuration(),
              "Time allowed for calls in progress to finish once new calls are refused");
  AddDuration(app, "--write-stall-timeout", config.write_stall_timeout, absl::Milliseconds(100),
              "How long a client may go without reading before its stream is closed");
  AddDuration(
      app, "--idle-timeout", config.idle_timeout, absl::Milliseconds(100),
      "How long a client's stream may be idle, with all responses read, before it is closed");
  AddChoice(app, "--log-format", config.log.format, {"text", "json"},
            "Format of log lines: text or json");
  AddChoice(app, "--log-level", config.log.level, {"debug", "info", "warning", "error", "off"},
            "Minimum level to log");
  AddChoice(app, "--access-log", config.log.access, {"off", "errors", "all"},
            "Calls to log, regardless of --log-level");
}

// Sets, from a TOML file, the flags that neither the command line nor the environment has set.
void ReadConfigFile(CLI::App& app, const std::string& path) {
  const auto refuse = [](auto... words) {
    throw CLI::ValidationError("--config", absl::StrCat(words...));
  };
  const absl::StatusOr<std::string> text = ReadRegularFile(path, kMaxConfigBytes);
  if (!text.ok()) refuse(text.status().message());
  std::istringstream stream(*text);
  const auto format = app.get_config_formatter_base();
  std::vector<std::string> seen;
  for (const CLI::ConfigItem& item : format->from_config(stream)) {
    CLI::Option* option = app.get_option_no_throw("--" + item.name);
    if (!item.parents.empty()) {
      refuse(path, ": got the table [", absl::StrJoin(item.parents, "."), "], want only flags");
    }
    if (option == nullptr || !option->get_configurable()) {
      refuse(path, ": got '", item.name, "', want the name of a flag without --");
    }
    if (absl::c_linear_search(seen, item.name)) refuse(path, ": got ", item.name, " twice");
    seen.push_back(item.name);
    if (!option->empty()) continue;
    if (item.inputs.size() > 1 && option->get_items_expected_max() == 1) {
      refuse(path, ": got ", item.inputs.size(), " values of ", item.name, ", want one");
    }
    if (option->get_expected_min() == 0) {
      option->add_result(option->get_flag_value(item.name, format->to_flag(item)));
    } else {
      option->add_result(item.inputs);
    }
    try {
      option->run_callback();
    } catch (const CLI::ValidationError& error) {
      refuse(path, ": ", error.what());
    }
  }
}

std::string Effective(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_configurable() || option->get_envname().empty()) continue;
    absl::StrAppend(
        &text, option->get_lnames().front(), "=",
        option->empty() ? option->get_default_str() : absl::StrJoin(option->reduced_results(), ","),
        "\n");
  }
  return text;
}

std::vector<std::string> Warnings(const CLI::App& app, const ServerConfig& config) {
  std::vector<std::string> warnings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name = std::string(*entry, std::strcspn(*entry, "="));
    if (!absl::StartsWith(name, kPrefix) || absl::c_linear_search(kVariablesOfOthers, name)) {
      continue;
    }
    const bool known = absl::c_any_of(app.get_options(), [&name](const CLI::Option* option) {
      return option->get_envname() == name;
    });
    if (known) continue;
    warnings.push_back(absl::StrCat(name, ": does not correspond to any flag"));
  }
  const bool plaintext = config.access.tls.certificate.empty() &&
                         !absl::c_all_of(config.listen, [](const std::string& listen) {
                           return ParseListenAddress(listen)->is_file();
                         });
  if (plaintext && !config.access.tokens.empty()) {
    warnings.push_back(
        "--tokens: without --tls-cert, tokens are sent in plaintext, which others on the network "
        "can "
        "read");
  }
  const int64_t memory = MemoryLimit();
  if (config.memory_budget_bytes > memory) {
    warnings.push_back(absl::StrCat("--memory-budget: got ", config.memory_budget_bytes,
                                    ", more than the ", memory, " bytes of memory available"));
  }
  return warnings;
}

}  // namespace

std::variant<ServerConfig, ExitCode> ParseConfig(int argc, const char* const* argv) {
  ServerConfig config;
  config.memory_budget_bytes = std::max<int64_t>(1, MemoryLimit() / 4);
  config.threads = ProcessorLimit();
  CLI::App app("Computes, caches and streams position tensors over gRPC.");
  app.set_version_flag("--version", ATTNBIAS_VERSION);
  app.add_flag("--check-config", config.check_config,
               "Print the effective configuration; exit with 0 if it is valid, else 2")
      ->configurable(false);
  // The last occurrence of a flag wins, so that a script can append its own flags to those it
  // received.
  app.option_defaults()->take_last()->always_capture_default();
  AddNetworkFlags(app, config);
  AddAccessFlags(app, config.access);
  AddComputeFlags(app, config);
  AddTableFlags(app, config);
  AddLifecycleFlags(app, config);
  for (CLI::Option* option : app.get_options()) {
    if (!option->get_configurable()) continue;
    const std::string name = absl::StrReplaceAll(option->get_lnames().front(), {{"-", "_"}});
    option->envname(absl::StrCat(kPrefix, absl::AsciiStrToUpper(name)));
  }
  std::string file;
  app.add_option("--config", file, "TOML file of flag values, keyed by flag name without --")
      ->configurable(false)
      ->envname(absl::StrCat(kPrefix, "CONFIG"))
      ->type_name("FILE");
  // --check-config prints these machine-dependent defaults; the help, which becomes a manual page,
  // does not.
  for (const char* name : {"--memory-budget", "--threads", "--cpu-isa"}) {
    CLI::Option* option = app.get_option(name);
    option->option_text(
        absl::StrCat(option->get_type_name(), " (Env:", option->get_envname(), ")"));
  }
  try {
    app.parse(argc, argv);
    if (!file.empty()) ReadConfigFile(app, file);
  } catch (const CLI::ParseError& error) {
    return ExitCode{app.exit(error) == 0 ? 0 : kExitInvalid};
  }
  config.effective = Effective(app);
  config.warnings = Warnings(app, config);
  return config;
}

}  // namespace attnbias
