// SPDX-License-Identifier: Apache-2.0
// inference.GRPCInferenceService: the Open Inference Protocol, in which every encoding is a model.
#pragma once

#include <functional>
#include <memory>

#include "grpcpp/impl/service_type.h"
#include "server/service/call.h"

namespace attnbias {

// `server_state` outlives the service; `ready` returns whether readiness is SERVING.
std::unique_ptr<grpc::Service> MakeInferenceService(ServerState* server_state,
                                                    std::function<bool()> ready);

}  // namespace attnbias
