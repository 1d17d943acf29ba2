// SPDX-License-Identifier: Apache-2.0
// What every gRPC server of this process has in common.
#ifndef ATTNBIAS_SERVER_TRANSPORT_H_
#define ATTNBIAS_SERVER_TRANSPORT_H_

#include <sys/types.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "server/listen_address.h"

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

// Starts the server that `builder` describes on `addresses`, and sets their
// ports to those that were bound. Socket files get `socket_mode` and no TLS:
// their clients are on this machine. Returns UNAVAILABLE, with the address, if
// one cannot be bound.
absl::StatusOr<std::unique_ptr<grpc::Server>> ListenOn(
    std::vector<ListenAddress>& addresses,
    const std::shared_ptr<grpc::ServerCredentials>& credentials,
    grpc::ServerBuilder& builder, mode_t socket_mode = 0600);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_TRANSPORT_H_
