// SPDX-License-Identifier: Apache-2.0
// Asks gRPC's health service without its generated stub, which the program may
// have already.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "attnbias/client.h"
#include "client/cpp/src/attempts.h"

namespace attnbias {

absl::StatusOr<Health> CheckHealth(
    const std::shared_ptr<grpc::Channel>& channel, const std::string& service,
    const Attempts& attempts);

}  // namespace attnbias
