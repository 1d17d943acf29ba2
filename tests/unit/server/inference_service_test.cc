// SPDX-License-Identifier: Apache-2.0
#include "server/service/oip/inference_service.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/kernel/kernel_set.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "inference/inference.grpc.pb.h"
#include "server/observe/logging.h"
#include "server/schedule/worker_pool.h"

namespace attnbias::inference_service_test {
namespace {

inference::ModelInferRequest DenseAlibi(const std::string& id, int heads,
                                        int length) {
  inference::ModelInferRequest request;
  request.set_model_name("alibi");
  request.set_id(id);
  auto& parameters = *request.mutable_parameters();
  parameters["alibi.num_heads"].set_int64_param(heads);
  parameters["pair.query_length"].set_int64_param(length);
  parameters["pair.key_length"].set_int64_param(length);
  parameters["output.form"].set_string_param("FORM_DENSE");
  return request;
}

class InferenceServiceTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    InitLogging({.level = "off", .access = "off"});
  }
  InferenceServiceTest()
      : engine_({.memory_budget_bytes = int64_t{64} << 20},
                *SupportedKernelSets().front(), &pool_, &metrics_),
        stall_watch_(std::chrono::minutes(10), std::chrono::minutes(10),
                     &engine_.budget(), &timer_),
        environment_{engine_, pool_, metrics_, stall_watch_, *access_},
        service_(MakeInferenceService(&environment_, [] { return true; })) {
    grpc::ServerBuilder builder;
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    stub_ = inference::GRPCInferenceService::NewStub(
        server_->InProcessChannel(arguments));
  }
  ~InferenceServiceTest() override { Stop(); }

  void Stop() {
    server_->Shutdown();
    pool_.Shutdown();
  }

  Metrics metrics_;
  WorkerPool pool_{2};
  Engine engine_;
  Timer timer_;
  StallWatch stall_watch_;
  const std::unique_ptr<Access> access_ = *Access::Load({});
  CallEnvironment environment_;
  const std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
};

TEST_F(InferenceServiceTest, PiecesAreTheWhole) {
  grpc::ClientContext one;
  inference::ModelInferResponse whole;
  const auto request = DenseAlibi("a", 1, 1100);
  ASSERT_TRUE(stub_->ModelInfer(&one, request, &whole).ok());
  ASSERT_EQ(whole.raw_output_contents_size(), 1);
  EXPECT_EQ(whole.raw_output_contents(0).size(), 1100U * 1100 * 4);

  grpc::ClientContext many;
  const auto call = stub_->ModelStreamInfer(&many);
  ASSERT_TRUE(call->Write(request));
  call->WritesDone();
  std::string joined;
  inference::ModelStreamInferResponse piece;
  int pieces = 0;
  for (; call->Read(&piece); ++pieces) {
    const auto& output = piece.infer_response().outputs(0);
    EXPECT_EQ(output.parameters().at("begin").int64_param(),
              joined.size() / sizeof(float));
    EXPECT_EQ(output.parameters().at("shape").string_param(),
              "[1, 1100, 1100]");
    joined += piece.infer_response().raw_output_contents(0);
    ASSERT_EQ(output.shape_size(), 1);
    EXPECT_EQ(joined.size() / sizeof(float),
              output.parameters().at("begin").int64_param() + output.shape(0));
  }
  EXPECT_TRUE(call->Finish().ok());
  EXPECT_EQ(pieces, 3);
  EXPECT_TRUE(joined == whole.raw_output_contents(0));
}

// Rows that are partly masked are made in memory of the budget.
TEST_F(InferenceServiceTest, ARequestWithoutMemoryDoesNotEndItsStream) {
  auto masked = DenseAlibi("large", 2, 1200);
  (*masked.mutable_parameters())["output.mask.window_left"].set_int64_param(9);
  (*masked.mutable_parameters())["output.mask.causal"].set_bool_param(true);
  (*masked.mutable_parameters())["alibi.variant"].set_string_param(
      "ALIBI_VARIANT_KEY_FROM_START");
  const ByteBudget::Reservation all =
      *engine_.cache().Reserve(int64_t{63} << 20, Caller("another"));
  grpc::ClientContext context;
  const auto call = stub_->ModelStreamInfer(&context);
  ASSERT_TRUE(call->Write(masked));
  ASSERT_TRUE(call->Write(DenseAlibi("small", 1, 2)));
  call->WritesDone();
  inference::ModelStreamInferResponse response;
  ASSERT_TRUE(call->Read(&response));
  EXPECT_EQ(response.error_message().rfind("RESOURCE_EXHAUSTED: ", 0), 0U)
      << response.error_message();
  EXPECT_EQ(response.infer_response().id(), "large");
  ASSERT_TRUE(call->Read(&response));
  EXPECT_EQ(response.error_message(), "");
  EXPECT_EQ(response.infer_response().id(), "small");
  EXPECT_FALSE(call->Read(&response));
  EXPECT_TRUE(call->Finish().ok());
}

TEST_F(InferenceServiceTest, ARequestThatCannotBeHeldDoesNotEndItsStream) {
  auto large = DenseAlibi("large", 1, 2);
  large.add_raw_input_contents(std::string(2 << 20, '\0'));
  const ByteBudget::Reservation all =
      *engine_.cache().Reserve(int64_t{63} << 20, Caller("another"));
  grpc::ClientContext context;
  const auto call = stub_->ModelStreamInfer(&context);
  inference::ModelStreamInferResponse response;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(call->Write(large));
    ASSERT_TRUE(call->Read(&response));
    EXPECT_EQ(response.error_message().rfind("RESOURCE_EXHAUSTED: ", 0), 0U)
        << response.error_message();
    EXPECT_EQ(response.infer_response().id(), "");
    ASSERT_TRUE(call->Write(DenseAlibi("small", 1, 2)));
    ASSERT_TRUE(call->Read(&response));
    EXPECT_EQ(response.error_message(), "");
    EXPECT_EQ(response.infer_response().id(), "small");
  }
  call->WritesDone();
  EXPECT_FALSE(call->Read(&response));
  EXPECT_TRUE(call->Finish().ok());
}

TEST_F(InferenceServiceTest, CancelledAnywhereNothingIsHeld) {
  std::vector<std::thread> clients;
  clients.reserve(4);
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([this, client] {
      std::minstd_rand random(client + 1);
      for (int i = 0; i < 30; ++i) {
        grpc::ClientContext context;
        const auto call = stub_->ModelStreamInfer(&context);
        for (int sent = 0; sent < 2; ++sent) {
          if (!call->Write(DenseAlibi("", 3, 600))) break;
        }
        // There are as many pieces as heads.
        inference::ModelStreamInferResponse response;
        for (auto most = random() % 6; most > 0; --most) call->Read(&response);
        if (random() % 2 == 0) call->WritesDone();
        context.TryCancel();
        while (call->Read(&response)) {
        }
        const grpc::Status status = call->Finish();
        EXPECT_TRUE(status.ok() ||
                    status.error_code() == grpc::StatusCode::CANCELLED)
            << status.error_message();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  Stop();
  EXPECT_EQ(engine_.budget().used(), engine_.cached_bytes());
}

}  // namespace
}  // namespace attnbias::inference_service_test
