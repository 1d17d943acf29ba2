// SPDX-License-Identifier: Apache-2.0
#include "server/run/config.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <sstream>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
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
// Variables of the clients and of the command-line tool.
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

void AddBytes(CLI::App& app, const std::string& name, int64_t& target, int64_t least,
              const std::string& description) {
  app.add_option(name, target, description)
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(least, std::numeric_limits<int64_t>::max()));
}

void AddDuration(CLI::App& app, const std::string& name, absl::Duration& target,
                 absl::Duration least, const std::string& description) {
  const auto parse = [name, least, &target](const std::string& text) {
    if (absl::ParseDuration(text, &target) && target >= least && target <= absl::Hours(24)) {
      return;
    }
    throw CLI::ValidationError(name, "got '" + text + "', want a duration from " +
                                         absl::FormatDuration(least) + " to 24h, such as 30s");
  };
  app.add_option_function<std::string>(name, parse, description)
      ->default_str(absl::FormatDuration(target))
      ->type_name("DURATION");
}

void AddSocketMode(CLI::App& app, mode_t& target) {
  const auto parse = [&target](const std::string& text) {
    const bool octal = !text.empty() && text.size() <= 4 &&
                       text.find_first_not_of("01234567") == std::string::npos;
    const unsigned mode = octal ? std::stoul(text, nullptr, 8) : 0;
    if (!octal || mode > 0777) {
      throw CLI::ValidationError(
          "--socket-mode", "got '" + text + "', want an octal mode from 0 to 0777, such as 0660");
    }
    target = mode;
  };
  app.add_option_function<std::string>("--socket-mode", parse, "Mode of the files of unix:PATH")
      ->default_str(absl::StrFormat("%04o", target))
      ->type_name("MODE");
}

// Accepts text that `parse` accepts, or reports the parser's error.
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
              "Age after which a connection is closed once its calls end; 0s: never");
  AddDuration(app, "--keepalive-time", transport.keepalive_time, absl::Seconds(1),
              "Time without data before a client is pinged");
  AddDuration(app, "--keepalive-timeout", transport.keepalive_timeout, absl::Seconds(1),
              "Time to wait for a ping reply before the connection is closed");
  app.add_option("--max-concurrent-streams", transport.max_concurrent_streams,
                 "Maximum concurrent calls on one connection")
      ->check(CLI::Range(1, 1000000));
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
      "CA certificates in PEM that verify clients; clients then need a certificate, or a token "
      "with --tokens");
  add("--tokens", files.tokens,
      "File with lines NAME sha256:DIGEST; callers need one of these tokens or a client "
      "certificate");
  add("--policy", files.policy, "JSON file with the rights and limits of each caller");
}

void AddComputeFlags(CLI::App& app, ServerConfig& config) {
  AddBytes(
      app, "--memory-budget", config.memory_budget_bytes, 1,
      "Maximum bytes of tensors computed, cached and in flight; default: a quarter of the memory");
  AddBytes(app, "--max-tensor-bytes", config.max_tensor_bytes, 1, "Maximum bytes of a payload");
  app.add_option("--threads", config.threads,
                 "Number of compute threads; default: one per processor")
      ->check(CLI::Range(1, 4096));
  app.add_option("--cpu-isa", config.cpu_isa,
                 "Instruction set of the kernels; default: the best that this CPU supports");
  app.add_option("--backend", config.backend,
                 "auto: use a CUDA device for results of at least --cuda-min-bytes; cuda: for "
                 "everything it can compute; cpu: never")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  AddBytes(app, "--cuda-min-bytes", config.cuda_min_bytes, 0,
           "Minimum bytes of a result on a CUDA device; 0 with --backend auto: CPU only");
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
              "Interval between checks of the tables' files for changes; 0s: never");
}

void AddLifecycleFlags(CLI::App& app, ServerConfig& config) {
  AddDuration(app, "--shutdown-delay", config.shutdown_delay, absl::ZeroDuration(),
              "Time between reporting NOT_SERVING and refusing new calls");
  AddDuration(app, "--drain-grace", config.drain_grace, absl::ZeroDuration(),
              "Time for running calls to finish once new calls are refused");
  AddDuration(app, "--write-stall-timeout", config.write_stall_timeout, absl::Milliseconds(100),
              "Time without read progress before a client's stream is closed");
  AddDuration(
      app, "--idle-timeout", config.idle_timeout, absl::Milliseconds(100),
      "Time without a request, after all answers are read, before a client's stream is closed");
  app.add_option("--log-format", config.log.format, "Format of log lines: text or json")
      ->check(CLI::IsMember({"text", "json"}));
  app.add_option("--log-level", config.log.level, "Minimum level to log")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}));
  app.add_option("--access-log", config.log.access, "Calls to log, regardless of --log-level")
      ->check(CLI::IsMember({"off", "errors", "all"}));
}

// Sets the flags that neither the command line nor the environment has set, from a TOML file.
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
    if (option->get_expected_min() == 0) {
      option->add_result(option->get_flag_value(item.name, format->to_flag(item)));
    } else {
      option->add_result(item.inputs);
    }
    option->run_callback();
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
