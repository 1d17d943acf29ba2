// SPDX-License-Identifier: Apache-2.0
#include "server/keep_warm.h"

#include <chrono>

#include "grpcpp/client_context.h"

namespace attnbias {

KeepWarm::KeepWarm(grpc::Server* server)
    : health_(grpc::health::v1::Health::NewStub(
          server->InProcessChannel(grpc::ChannelArguments()))),
      task_(std::chrono::milliseconds(400), [this] { Call(); }) {}

void KeepWarm::Call() {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(1));
  grpc::health::v1::HealthCheckRequest request;
  grpc::health::v1::HealthCheckResponse response;
  // Only the traffic matters, not the answer.
  (void)health_->Check(&context, request, &response);
}

}  // namespace attnbias
