// SPDX-License-Identifier: Apache-2.0
// The server: builds and owns all of its parts.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/executor.h"
#include "core/engine/engine.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "server/access/access.h"
#include "server/observe/health_service.h"
#include "server/observe/metrics.h"
#include "server/run/config.h"
#include "server/run/table_mounts.h"
#include "server/run/transport.h"
#include "server/schedule/stream_watchdog.h"
#include "server/schedule/timer.h"
#include "server/schedule/worker_pool.h"
#include "server/service/call.h"
#include "server/service/oip/infer.h"
#include "server/service/tensor_service.h"

namespace attnbias {

class Server {
 public:
  // Loads everything that `config` names, but binds no port. Returns INVALID_ARGUMENT, naming the
  // flag, for an invalid configuration.
  static absl::StatusOr<std::unique_ptr<Server>> Create(const ServerConfig& config);

  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server();

  // Binds the ports and accepts calls, but still reports NOT_SERVING. Returns UNAVAILABLE if a port
  // cannot be bound.
  absl::Status Start();
  // Fills the cache as configured, then reports SERVING.
  absl::Status BecomeReady(const CallerPtr& caller);
  // Reports NOT_SERVING, waits for the shutdown delay, refuses new calls, and waits for running
  // calls during the grace period. Returns when no calls remain.
  void Drain();

  // Rereads the learned tables and the files in AccessFiles, on other threads. Errors are logged
  // and leave the previous values in use. Must be called after Start.
  void Reload();

  // Tasks on this timer must end before this object is destroyed.
  Timer& timer() { return timer_; }

  // Returns the version and the configuration on one line.
  std::string Summary() const;

  // Return the addresses with the ports that Start bound; the service addresses are joined by ", ".
  std::string address() const;
  const std::string& metrics_address() const { return metrics_port_->address(); }
  std::string probe_address() const;

 private:
  class Backend;

  Server(const ServerConfig& config, std::unique_ptr<Metrics> metrics,
         std::unique_ptr<Backend> backend, std::unique_ptr<Access> access);
  absl::StatusOr<std::shared_ptr<const void>> HoldTable(int64_t bytes);
  void AddGauges();
  absl::Status StartGrpc();
  absl::Status StartProbes();
  // Logs a warning if other machines can reach, without a certificate, a gRPC version that gets no
  // security fixes.
  void WarnOfExposure() const;
  void KeepWarm();
  v1::GetServerInfoResponse MakeInfo() const;

  const ServerConfig config_;
  Timer timer_;
  // Set by Drain; outlives everything that could still compute.
  std::optional<Timer::Task> last_resort_;
  const std::unique_ptr<Metrics> metrics_;
  const std::unique_ptr<Backend> backend_;
  const std::unique_ptr<Access> access_;
  WorkerPool pool_;
  Engine engine_;
  StreamWatchdog watchdog_;
  Timer::Task cancelled_task_;
  ServerState server_state_;
  // True once the shutdown delay has started.
  std::atomic<bool> drains_{false};
  TableMounts table_mounts_;
  HealthService health_;
  const std::unique_ptr<grpc::Service> service_;
  const std::unique_ptr<grpc::Service> inference_service_;
  std::vector<PlanPtr> precompute_;
  std::vector<ListenAddress> addresses_;
  std::unique_ptr<MetricsPort> metrics_port_;
  // gRPC uses the credentials at each handshake without owning them.
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  std::unique_ptr<grpc::Server> grpc_server_;
  std::vector<ListenAddress> probe_addresses_;
  std::unique_ptr<grpc::Server> probe_server_;
  std::optional<Timer::Task> keep_warm_;
  std::optional<Timer::Task> tables_task_;
  std::optional<Timer::Task> access_task_;
};

}  // namespace attnbias
