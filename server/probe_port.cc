// SPDX-License-Identifier: Apache-2.0
#include "server/probe_port.h"

#include <chrono>
#include <utility>

#include "core/base/status_macros.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace attnbias {
namespace {

// Probes come one at a time, from one machine.
constexpr int kMaxProbeConnections = 64;
constexpr int kMaxProbeStreams = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<ProbePort>> ProbePort::Listen(
    const std::string& address, HealthService* health) {
  ATTNBIAS_ASSIGN_OR_RETURN(auto acceptor,
                            Acceptor::Listen({address}, kMaxProbeConnections));
  return std::unique_ptr<ProbePort>(new ProbePort(std::move(acceptor), health));
}

ProbePort::ProbePort(std::unique_ptr<Acceptor> acceptor, HealthService* health)
    : acceptor_(std::move(acceptor)) {
  grpc::ServerBuilder builder;
  builder.SetOption(WithoutReflection());
  ConfigureTransport({.max_concurrent_streams = kMaxProbeStreams}, builder);
  builder.RegisterService(health);
  entrance_ =
      std::make_unique<Entrance>(builder, grpc::InsecureServerCredentials());
  server_ = builder.BuildAndStart();
  acceptor_->Start({.on_connection = [this](int fd) { entrance_->Enter(fd); },
                    .on_rejected = [] {}});
}

ProbePort::~ProbePort() {
  acceptor_->Stop();
  server_->Shutdown(std::chrono::system_clock::now());
}

}  // namespace attnbias
