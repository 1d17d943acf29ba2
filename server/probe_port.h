// SPDX-License-Identifier: Apache-2.0
// Health alone, in plaintext: Kubernetes' probes speak no TLS.
#ifndef ATTNBIAS_SERVER_PROBE_PORT_H_
#define ATTNBIAS_SERVER_PROBE_PORT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/server.h"
#include "server/acceptor.h"
#include "server/health_service.h"
#include "server/transport.h"

namespace attnbias {

// Serves while it lives.
class ProbePort {
 public:
  // `health` outlives it. UNAVAILABLE for a port that cannot be had.
  static absl::StatusOr<std::unique_ptr<ProbePort>> Listen(
      const std::string& address, HealthService* health);

  ProbePort(const ProbePort&) = delete;
  ProbePort& operator=(const ProbePort&) = delete;
  ~ProbePort();

  // HOST:PORT with the port that was really taken.
  const std::string& address() const { return acceptor_->address(); }

 private:
  ProbePort(std::unique_ptr<Acceptor> acceptor, HealthService* health);

  const std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<Entrance> entrance_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_PROBE_PORT_H_
