// SPDX-License-Identifier: Apache-2.0
// What an operator may set. Precedence: flag, environment, default.
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

// Each field is the value of the flag of its name, whose help says what it does.
struct ServerConfig {
  // Port 0 takes a free one.
  std::vector<std::string> listen = {"[::]:50051"};
  std::string metrics_listen = "[::]:9464";
  // Empty for none.
  std::string probe_listen;
  AccessFiles access;
  // More serves more requests from the cache.
  int64_t memory_budget_bytes = 0;
  int64_t max_tensor_bytes = int64_t{1} << 40;
  int threads = 1;
  TransportOptions transport;
  bool oip = true;
  // In which load balancers notice, while the server goes on as usual.
  absl::Duration drain_notice = absl::Seconds(5);
  absl::Duration drain_grace = absl::Seconds(30);
  absl::Duration progress_timeout = absl::Seconds(60);
  absl::Duration idle_timeout = absl::Minutes(10);
  std::string kernels = std::string(SupportedKernelSets().front()->name);
  std::string backend = "auto";
  int64_t cuda_min_bytes = 0;
  // Empty for none.
  std::string precompute;
  TableSources tables;
  absl::Duration tables_poll = absl::Seconds(5);
  LogOptions log;
  bool check_config = false;

  // One line FLAG=VALUE for each flag.
  std::string effective;
  // What is allowed, but probably a mistake.
  std::vector<std::string> warnings;
};

// What the process should exit with: the text has been printed.
struct ExitCode {
  int value = 0;
};

// Exits with 0 after --help and --version, with 2 after a mistake, which is printed on the standard
// error.
std::variant<ServerConfig, ExitCode> ParseConfig(int argc, const char* const* argv);

}  // namespace attnbias
