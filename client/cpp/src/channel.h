// SPDX-License-Identifier: Apache-2.0
// The connection's settings.
#pragma once

#include <grpcpp/channel.h>

#include <memory>

#include "attnbias/client.h"

namespace attnbias {

// A spare one serves a large payload now and then: its connections are closed
// soon after.
enum class ChannelUse { kFirst, kSpare };

// A channel of its own, tuned for large payloads and for this client's own
// retries. The options' target and TLS are resolved.
std::shared_ptr<grpc::Channel> MakeChannel(const ClientOptions& options,
                                           ChannelUse use);

}  // namespace attnbias
