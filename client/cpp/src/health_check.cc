// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/health_check.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include "attnbias/internal/rpc.pb.h"
#include "client/cpp/src/rpc_status.h"

namespace attnbias {
namespace {

using internal::HealthCheckRequest;
using internal::HealthCheckResponse;

constexpr char kMethod[] = "/grpc.health.v1.Health/Check";

Health FromWire(HealthCheckResponse::ServingStatus status) {
  switch (status) {
    case HealthCheckResponse::SERVING:
      return Health::kServing;
    case HealthCheckResponse::NOT_SERVING:
      return Health::kNotServing;
    default:
      return Health::kUnknown;
  }
}

}  // namespace

absl::StatusOr<Health> CheckHealth(
    const std::shared_ptr<grpc::Channel>& channel, const std::string& service,
    const Attempts& attempts) {
  grpc::ClientContext context;
  attempts.Prepare(&context);
  HealthCheckRequest request;
  request.set_service(service);
  HealthCheckResponse response;
  grpc::Status status;

  grpc::CompletionQueue queue;
  grpc::TemplatedGenericStub<HealthCheckRequest, HealthCheckResponse> stub(
      channel);
  const auto call = stub.PrepareUnaryCall(&context, kMethod, request, &queue);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!status.ok()) return FromRpc(status);
  return FromWire(response.status());
}

}  // namespace attnbias
