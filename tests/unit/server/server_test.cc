// SPDX-License-Identifier: Apache-2.0
// The whole server in this process, from ports to teardown.
#include "server/run/server.h"

#include <memory>
#include <string>
#include <thread>

#include "attnbias/v1/service.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "server/observe/logging.h"
#include "tests/unit/support/status_matchers.h"

namespace attnbias::server_test {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

ServerConfig SmallConfig() {
  ServerConfig config;
  config.listen = {"127.0.0.1:0"};
  config.metrics_listen = "127.0.0.1:0";
  config.memory_budget_bytes = 64 << 20;
  config.threads = 2;
  config.shutdown_delay = absl::ZeroDuration();
  return config;
}

class ServerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { InitLogging({.level = "off", .access = "off"}); }

  void Start(const ServerConfig& config) {
    server_ = Server::Create(config).value();
    ASSERT_THAT(server_->Start(), IsOk());
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  }

  HealthCheckResponse::ServingStatus Readiness() {
    grpc::ClientContext context;
    HealthCheckRequest request;
    HealthCheckResponse response;
    request.set_service("readiness");
    EXPECT_TRUE(Health::NewStub(channel_)->Check(&context, request, &response).ok());
    return response.status();
  }

  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(ServerTest, BecomesReadyServesAndDrainsOpenStream) {
  Start(SmallConfig());
  EXPECT_EQ(Readiness(), HealthCheckResponse::NOT_SERVING);
  ASSERT_THAT(server_->BecomeReady(std::make_shared<Caller>()), IsOk());
  EXPECT_EQ(Readiness(), HealthCheckResponse::SERVING);

  v1::StreamTensorRequest request;
  request.mutable_spec()->mutable_alibi()->set_num_heads(8);
  request.mutable_spec()->mutable_pair()->set_query_length(1024);
  request.mutable_spec()->mutable_pair()->set_key_length(1024);
  request.mutable_spec()->mutable_output()->set_form(v1::FORM_DENSE);
  grpc::ClientContext context;
  const auto reader = v1::AttentionBiasService::NewStub(channel_)->StreamTensor(&context, request);
  v1::StreamTensorResponse response;
  ASSERT_TRUE(reader->Read(&response));

  std::thread drain([this] { server_->Drain(); });
  auto bytes = static_cast<int64_t>(response.data().size());
  while (reader->Read(&response)) bytes += response.data().size();
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_code() << status.error_message();
  EXPECT_EQ(bytes, int64_t{8} * 1024 * 1024 * 4);
  drain.join();
}

TEST_F(ServerTest, StopsWithoutDrain) {
  Start(SmallConfig());
  Readiness();
}

}  // namespace
}  // namespace attnbias::server_test
