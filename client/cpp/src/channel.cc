// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/channel.h"

#include <grpc/impl/codegen/grpc_types.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <map>
#include <string>
#include <variant>

#include "client/cpp/src/security.h"
#include "client/cpp/src/target.h"

namespace attnbias {

std::shared_ptr<grpc::Channel> MakeChannel(const ClientOptions& options) {
  std::map<std::string, std::variant<int, std::string>> merged = options.channel_options;
  if (IsOnThisMachine(options.target)) {
    // A proxy named in the environment cannot reach a local address.
    merged.insert({GRPC_ARG_ENABLE_HTTP_PROXY, 0});
  }
  if (!options.tls->server_name.empty()) {
    merged.insert({GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, options.tls->server_name});
  }
  merged.insert({
      // Spreads calls over all replicas and skips replicas that are gone.
      {GRPC_ARG_LB_POLICY_NAME, "round_robin"},
      // gRPC's default of 30 s exceeds the 5 s within which a replica is replaced.
      {GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 500},
      // A connection uses about one core, so clients in one process do not share connections.
      {GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1},
      // Abandons a peer that is silent for 10 s + 5 s while a call waits. Later versions of gRPC
      // read the third option.
      {GRPC_ARG_KEEPALIVE_TIME_MS, 10'000},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000},
      {"grpc.http2.ping_timeout_ms", 5'000},
      {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
      // Reconnects to a restarted server within a tenth of a second.
      {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100},
      {GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000},
      // This client does its own retries; gRPC makes at most five attempts.
      {GRPC_ARG_ENABLE_RETRIES, 0},
      // In measurements on loopback, a fixed wide window and chunk-sized frames are faster than
      // gRPC's own probing, which starts at 64 KiB.
      {GRPC_ARG_HTTP2_BDP_PROBE, 0},
      {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 16 << 20},
      {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, (16 << 20) - 1},  // HTTP/2's own limit
  });
  grpc::ChannelArguments arguments;
  for (const auto& [name, value] : merged) {
    if (const int* number = std::get_if<int>(&value)) {
      arguments.SetInt(name, *number);
    } else {
      arguments.SetString(name, std::get<std::string>(value));
    }
  }
  return grpc::CreateCustomChannel(options.target, CredentialsOf(*options.tls), arguments);
}

}  // namespace attnbias
