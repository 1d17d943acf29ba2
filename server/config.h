// SPDX-License-Identifier: Apache-2.0
// What an operator may set. Precedence: flag, environment, default.
#ifndef ATTNBIAS_SERVER_CONFIG_H_
#define ATTNBIAS_SERVER_CONFIG_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "core/kernel/kernel_set.h"
#include "server/access/access.h"
#include "server/table_mounts.h"
#include "server/transport.h"

namespace attnbias {

struct ServerConfig {
  // Addresses of the gRPC service; port 0 takes a free one.
  std::vector<std::string> listen = {"[::]:50051"};
  // Mode of the files of unix:PATH.
  mode_t socket_mode = 0660;
  // Address of the Prometheus metrics, at /metrics.
  std::string metrics_listen = "[::]:9464";
  // Address of the health service alone, in plaintext; empty for none.
  std::string probe_listen;
  // TLS, tokens, policy.
  AccessFiles access;
  // Bytes of tensors computed, cached and in flight together. More serves more
  // requests from the cache.
  int64_t memory_budget_bytes = 0;
  // Payloads larger than this are refused.
  int64_t max_tensor_bytes = int64_t{1} << 40;
  // Threads that compute.
  int threads = 1;
  TransportOptions transport;
  // Whether clients may ask for the service's description.
  bool reflection = true;
  // Whether the Open Inference Protocol is served beside the contract.
  bool oip = true;
  // How long the server goes on as usual after it has said NOT_SERVING, so that
  // load balancers notice first.
  absl::Duration drain_notice = absl::Seconds(5);
  // How long running calls then have to finish.
  absl::Duration drain_grace = absl::Seconds(30);
  // A stream whose client takes nothing for this long is closed.
  absl::Duration progress_timeout = absl::Seconds(60);
  // So is one that waits for its client to send for this long.
  absl::Duration idle_timeout = absl::Minutes(10);
  // Name of the kernels to use: the best that this CPU has.
  std::string kernels = std::string(SupportedKernelSets().front()->name);
  // "auto", "cpu" or "cuda".
  std::string backend = "auto";
  // Results smaller than this are left to the CPU; where the backend is "auto",
  // 0 leaves it all.
  int64_t cuda_min_bytes = 0;
  // JSON file with an array of TensorSpec, kept in the cache before the server
  // is ready; empty for none.
  std::string precompute;
  // Learned tables to mount.
  TableSources tables;
  // How often their files are looked at; 0 for never.
  absl::Duration tables_poll = absl::Seconds(5);
  std::string log_format = "text";
  std::string log_level = "info";
  // The calls that leave a line in it: "off", "errors" or "all".
  std::string access_log = "all";
  // Only say whether the configuration is valid.
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

// Exits with 0 after --help and --version, with 2 after a mistake, which is
// printed on the standard error.
std::variant<ServerConfig, ExitCode> ParseConfig(int argc,
                                                 const char* const* argv);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_CONFIG_H_
