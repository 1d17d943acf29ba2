// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/neighbour/neighbour.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/error_details.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace attnbias {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

class HealthService final : public grpc::health::v1::Health::Service {
  grpc::Status Check(grpc::ServerContext*, const HealthCheckRequest* request,
                     HealthCheckResponse* response) override {
    response->set_status(HealthCheckResponse::SERVING);
    if (request->service().empty()) return grpc::Status::OK;
    google::rpc::BadRequest bad;
    auto* violation = bad.add_field_violations();
    violation->set_field("service");
    violation->set_description("got " + request->service());
    google::rpc::Status details;
    details.set_code(grpc::StatusCode::INVALID_ARGUMENT);
    details.set_message("a wrong service");
    details.add_details()->PackFrom(bad);
    grpc::Status status;
    grpc::SetErrorDetails(details, &status);
    return status;
  }
};

}  // namespace

std::unique_ptr<grpc::Server> StartNeighbour(int* port) {
  static HealthService health;  // outlives the server
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), port);
  builder.RegisterService(&health);
  return builder.BuildAndStart();
}

}  // namespace attnbias
