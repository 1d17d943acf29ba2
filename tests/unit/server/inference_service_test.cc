// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "inference/inference.grpc.pb.h"
#include "server/service/oip/infer.h"
#include "tests/unit/support/service_harness.h"

namespace attnbias::inference_service_test {
namespace {

inference::ModelInferRequest DenseAlibi(const std::string& id, int heads, int length) {
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

class InferenceServiceTest : public ServiceHarness {
 protected:
  InferenceServiceTest()
      : ServiceHarness({.memory_budget_bytes = int64_t{64} << 20}),
        stub_(inference::GRPCInferenceService::NewStub(
            Serve(MakeInferenceService(&server_state_, [] { return true; })))) {}

  const std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
};

// Partly masked rows are produced in budgeted memory.
TEST_F(InferenceServiceTest, RequestWithoutMemoryDoesNotEndItsStream) {
  auto masked = DenseAlibi("large", 2, 1200);
  (*masked.mutable_parameters())["output.mask.window_left"].set_int64_param(9);
  (*masked.mutable_parameters())["output.mask.causal"].set_bool_param(true);
  (*masked.mutable_parameters())["alibi.variant"].set_string_param("ALIBI_VARIANT_KEY_FROM_START");
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

TEST_F(InferenceServiceTest, OversizedRequestDoesNotEndItsStream) {
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

TEST_F(InferenceServiceTest, CancellationReleasesAllMemory) {
  CancelAnywhere(30, [this](std::minstd_rand& random) {
    grpc::ClientContext context;
    const auto call = stub_->ModelStreamInfer(&context);
    for (int sent = 0; sent < 2; ++sent) {
      if (!call->Write(DenseAlibi("", 3, 600))) break;
    }
    // The number of chunks equals the number of heads.
    return CancelAfter<inference::ModelStreamInferResponse>(context, *call, random, 6);
  });
  EXPECT_EQ(engine_.budget().used(), engine_.cached_bytes());
}

}  // namespace
}  // namespace attnbias::inference_service_test
