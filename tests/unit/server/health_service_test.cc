// SPDX-License-Identifier: Apache-2.0
#include "server/observe/health_service.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace attnbias::health_service_test {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr char kService[] = "attnbias.v1.AttentionBiasService";

class HealthTest : public testing::Test {
 protected:
  HealthTest() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&health_);
    server_ = builder.BuildAndStart();
    stub_ = Health::NewStub(server_->InProcessChannel({}));
  }

  HealthCheckResponse::ServingStatus Check(const std::string& name) {
    grpc::ClientContext context;
    HealthCheckRequest request;
    HealthCheckResponse response;
    request.set_service(name);
    EXPECT_TRUE(stub_->Check(&context, request, &response).ok());
    return response.status();
  }

  HealthService health_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Health::Stub> stub_;
};

// One Watch, read step by step.
class Watch {
 public:
  Watch(Health::Stub* stub, const std::string& name) {
    HealthCheckRequest request;
    request.set_service(name);
    reader_ = stub->Watch(&context_, request);
  }
  HealthCheckResponse::ServingStatus Next() {
    HealthCheckResponse response;
    EXPECT_TRUE(reader_->Read(&response));
    return response.status();
  }
  grpc::Status End() {
    HealthCheckResponse response;
    while (reader_->Read(&response)) {
    }
    return reader_->Finish();
  }
  void Cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> reader_;
};

TEST_F(HealthTest, BeforeReadinessOnlyLivenessServes) {
  EXPECT_EQ(Check("liveness"), HealthCheckResponse::SERVING);
  for (const char* name : {"", "readiness", kService}) {
    EXPECT_EQ(Check(name), HealthCheckResponse::NOT_SERVING) << name;
  }
  EXPECT_FALSE(health_.ready());
}

// gRPC keeps the name for the lifetime of the watch.
TEST_F(HealthTest, RejectsWatchOfLongName) {
  Watch watch(stub_.get(), std::string(300, 'x'));
  const grpc::Status end = watch.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(end.error_message(), "service: got 300 bytes, want at most 256");
  health_.SetServing(true);
}

TEST_F(HealthTest, WatchesStartAndEndWhileStateChanges) {
  std::atomic<bool> stop{false};
  std::thread changes([&] {
    for (bool serving = true; !stop; serving = !serving) {
      health_.SetServing(serving);
    }
    health_.SetServing(true);
  });
  std::vector<std::pair<std::unique_ptr<Watch>, int>> watches;
  for (int i = 0; i < 50; ++i) {
    auto watch = std::make_unique<Watch>(stub_.get(), "");
    const int first = watch->Next();
    watches.emplace_back(std::move(watch), first);
  }
  stop = true;
  changes.join();
  // The last update that each watcher receives is the last change.
  for (auto& [watch, status] : watches) {
    while (status != HealthCheckResponse::SERVING) status = watch->Next();
  }
  health_.FinishWatchers();
}

TEST_F(HealthTest, CancelledWatchIsForgotten) {
  Watch watch(stub_.get(), "");
  watch.Next();
  watch.Cancel();
  EXPECT_EQ(watch.End().error_code(), grpc::StatusCode::CANCELLED);
  health_.SetServing(true);
  server_->Shutdown();
}

}  // namespace
}  // namespace attnbias::health_service_test
