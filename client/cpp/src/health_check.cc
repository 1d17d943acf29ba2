// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/health_check.h"

#include <grpcpp/client_context.h>

#include "attnbias/internal/rpc.pb.h"
#include "client/cpp/src/unary_call.h"

namespace attnbias {
namespace {

using internal::HealthCheckRequest;
using internal::HealthCheckResponse;

constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";

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
  const grpc::Status status =
      CallUnary(channel, kHealthCheck, request, &context, &response);
  if (!status.ok()) return attempts.ErrorOf(status);
  return FromWire(response.status());
}

}  // namespace attnbias
