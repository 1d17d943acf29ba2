// SPDX-License-Identifier: Apache-2.0
// The server's configuration. Precedence: flag, environment, --config file, default.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "core/kernel/kernel_set.h"
#include "server/access/access.h"
#include "server/observe/logging.h"
#include "server/run/table_mounts.h"
#include "server/run/transport.h"

namespace attnbias {

// Values of the flags, which --help documents.
struct ServerConfig {
  // Port 0 selects any free port.
  std::vector<std::string> listen = {"[::]:50051"};
  std::string metrics_listen = "[::]:9464";
  // Empty disables the port.
  std::string probe_listen;
  AccessFiles access;
  int64_t memory_budget_bytes = 0;
  int64_t max_tensor_bytes = int64_t{1} << 40;
  int threads = 1;
  TransportOptions transport;
  bool oip = true;
  // Time for load balancers to notice NOT_SERVING, during which calls are still accepted.
  absl::Duration shutdown_delay = absl::Seconds(5);
  absl::Duration drain_grace = absl::Seconds(30);
  absl::Duration write_stall_timeout = absl::Seconds(60);
  absl::Duration idle_timeout = absl::Minutes(10);
  std::string cpu_isa = std::string(SupportedKernelSets().front()->name);
  std::string backend = "auto";
  int64_t cuda_min_bytes = 0;
  std::string precompute;
  TableSources tables;
  absl::Duration tables_poll = absl::Seconds(5);
  LogOptions log;
  bool check_config = false;

  // One FLAG=VALUE line per flag.
  std::string effective;
  // Warnings about values that are allowed but probably mistakes.
  std::vector<std::string> warnings;
};

// Exit code for the process, which has already printed its output.
struct ExitCode {
  int value = 0;
};

// Returns exit code 0 for --help and --version, and 2 for an error, printed to standard error.
std::variant<ServerConfig, ExitCode> ParseConfig(int argc, const char* const* argv);

}  // namespace attnbias
