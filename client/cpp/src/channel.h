// SPDX-License-Identifier: Apache-2.0
// The connection's settings.
#pragma once

#include <grpcpp/channel.h>

#include <memory>

#include "attnbias/client.h"

namespace attnbias {

// A channel of its own, tuned for large payloads and for this client's own
// retries. The options' target and TLS are resolved.
std::shared_ptr<grpc::Channel> MakeChannel(const ClientOptions& options);

}  // namespace attnbias
