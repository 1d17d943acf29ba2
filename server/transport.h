// SPDX-License-Identifier: Apache-2.0
// What every gRPC server of this process has in common.
#ifndef ATTNBIAS_SERVER_TRANSPORT_H_
#define ATTNBIAS_SERVER_TRANSPORT_H_

#include <memory>

#include "absl/time/time.h"
#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace attnbias {

struct TransportOptions {
  // Calls at once on one connection.
  int max_concurrent_streams = 256;
  // A client that is silent for so long is pinged, and given up when it does
  // not answer for so long.
  absl::Duration keepalive_time = absl::Seconds(60);
  absl::Duration keepalive_timeout = absl::Seconds(20);
  // Older connections are told to go away once their calls have ended, give or
  // take a tenth; zero for never.
  absl::Duration max_connection_age;
};

// Also bounds what peers may make gRPC do and hold.
void ConfigureTransport(const TransportOptions& options,
                        grpc::ServerBuilder& builder);

// Whoever links gRPC's reflection has it in every server but those built with
// this.
std::unique_ptr<grpc::ServerBuilderOption> WithoutReflection();

// Reflection repeats each request in its answer: with this, the beginning of
// it.
void BoundReflections(grpc::ServerBuilder& builder);

// Where connections that are accepted elsewhere come in.
class Entrance {
 public:
  // Before the server is built.
  Entrance(grpc::ServerBuilder& builder,
           std::shared_ptr<grpc::ServerCredentials> credentials);

  // Takes ownership of a connected, non-blocking socket. From one thread, once
  // the server is built.
  void Enter(int fd);

 private:
  // gRPC asks them at each handshake.
  const std::shared_ptr<grpc::ServerCredentials> credentials_;
  const std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>
      acceptor_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_TRANSPORT_H_
