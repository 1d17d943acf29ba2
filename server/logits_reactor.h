// SPDX-License-Identifier: Apache-2.0
#ifndef ATTNBIAS_SERVER_LOGITS_REACTOR_H_
#define ATTNBIAS_SERVER_LOGITS_REACTOR_H_

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/call.h"

namespace attnbias {

// Begins one ComputeLogits.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ComputeLogits(
    CallEnvironment* environment, grpc::CallbackServerContext* context);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_LOGITS_REACTOR_H_
