// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/channel.h"

#include <grpc/impl/codegen/grpc_types.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <cstdlib>

namespace attnbias {
namespace {

// Measured on loopback: a fixed wide window and frames as large as a chunk are
// faster than gRPC's own probing, which starts at 64 KiB and pings as it goes.
constexpr int kLookaheadBytes = 16 << 20;
constexpr int kMaxFrameBytes = (16 << 20) - 1;  // HTTP/2's own limit

// A server that restarts is found again within a tenth of a second.
constexpr int kFirstReconnectMilliseconds = 100;
constexpr int kLargestReconnectMilliseconds = 5000;

// gRPC takes receive buffers from malloc, 64 KiB each, and frees a message's
// worth of them at once. glibc would hand them back to the system and fault
// them in again for every message, a third of the time of a large download.
// Freeing one mapped block raises the bounds above which it does (mallopt(3),
// M_MMAP_THRESHOLD: "dynamic"), and leaves bounds set by the user alone.
void KeepReceiveBuffers() {
  constexpr size_t kSeveralMessages = 4 << 20;
  void* volatile block = std::malloc(kSeveralMessages);
  std::free(block);
}

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target) {
  KeepReceiveBuffers();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                   kFirstReconnectMilliseconds);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
                   kLargestReconnectMilliseconds);
  // A connection uses about one core, so clients in one process do not share
  // one.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(),
                                   arguments);
}

}  // namespace attnbias
