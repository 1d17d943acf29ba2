// SPDX-License-Identifier: Apache-2.0
// A connection with the client's settings, and unary calls on it.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <memory>
#include <string>

#include "attnbias/client.h"

namespace attnbias {

// Returns a new channel, configured for large payloads and for the client's own retries. The target
// and TLS settings in `options` must already be resolved.
std::shared_ptr<grpc::Channel> MakeChannel(const ClientOptions& options);

// Makes a unary call without a generated stub, either because the program may already contain the
// service's stub, or to get the response as gRPC received it (grpc::ByteBuffer).
template <typename Request, typename Response>
grpc::Status CallUnary(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                       const Request& request, grpc::ClientContext* context, Response* response) {
  grpc::CompletionQueue queue;
  grpc::TemplatedGenericStub<Request, Response> stub(channel);
  const auto call = stub.PrepareUnaryCall(context, method, request, &queue);
  call->StartCall();
  grpc::Status status;
  call->Finish(response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return status;
}

}  // namespace attnbias
