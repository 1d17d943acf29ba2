// SPDX-License-Identifier: Apache-2.0
#include "server/service/tensor_service.h"

#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "attnbias/v1/service.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "server/service/messages.h"
#include "tests/unit/support/service_harness.h"

namespace attnbias::tensor_service_test {
namespace {

v1::TensorSpec Alibi(int heads, int length, v1::Form form) {
  v1::TensorSpec spec;
  spec.mutable_alibi()->set_num_heads(heads);
  spec.mutable_pair()->set_query_length(length);
  spec.mutable_pair()->set_key_length(length);
  spec.mutable_output()->set_form(form);
  return spec;
}

class TensorServiceTest : public ServiceHarness {
 protected:
  grpc::Status Get(const v1::TensorSpec& spec, std::string* data) {
    grpc::ClientContext context;
    v1::GetTensorRequest request;
    *request.mutable_spec() = spec;
    v1::GetTensorResponse response;
    grpc::Status status = stub_->GetTensor(&context, request, &response);
    *data = response.data();
    for (const auto& [key, value] : context.GetServerTrailingMetadata()) {
      trailers_[std::string(key.data(), key.size())] = std::string(value.data(), value.size());
    }
    return status;
  }

  // Reads up to `most` messages and then cancels.
  grpc::Status Stream(const v1::TensorSpec& spec, int most, std::string* data) {
    grpc::ClientContext context;
    v1::StreamTensorRequest request;
    *request.mutable_spec() = spec;
    request.set_max_chunk_bytes(kMinChunkBytes);
    const auto reader = stub_->StreamTensor(&context, request);
    v1::StreamTensorResponse response;
    int count = 0;
    for (; count < most && reader->Read(&response); ++count) {
      data->append(response.data());
    }
    if (count == most) context.TryCancel();
    while (reader->Read(&response)) {
    }
    return reader->Finish();
  }

  // Returns the number of calls that were in the phase.
  std::string PhaseCount(const std::string& method, const std::string& phase) {
    const std::string text = metrics_.Text();
    const std::string name =
        "attnbias_phase_seconds_count{grpc_method=\"" + method + "\",phase=\"" + phase + "\"} ";
    const size_t begin = text.find(name);
    if (begin == std::string::npos) return "";
    const size_t value = begin + name.size();
    return text.substr(value, text.find('\n', value) - value);
  }
  // Calls are counted shortly after clients receive the status.
  void AwaitEnd() {
    while (watchdog_.open_calls() > 0) std::this_thread::yield();
  }

  const std::unique_ptr<v1::AttentionBiasService::Stub> stub_ = v1::AttentionBiasService::NewStub(
      Serve(MakeTensorService(&server_state_, [] { return v1::GetServerInfoResponse(); })));
  std::map<std::string, std::string> trailers_;
};

constexpr int kAll = 1 << 30;

// Go's longest timeout exceeds the range of a clock in nanoseconds.
TEST_F(TensorServiceTest, VeryDistantDeadlinesAreNotExpired) {
  for (const int64_t hours : {int64_t{1}, int64_t{2'100'000}}) {
    grpc::ClientContext context;
    context.set_deadline(
        gpr_time_add(gpr_now(GPR_CLOCK_REALTIME), gpr_time_from_hours(hours, GPR_TIMESPAN)));
    v1::GetTensorRequest request;
    *request.mutable_spec() = Alibi(1, 4, v1::FORM_UNSPECIFIED);
    v1::GetTensorResponse response;
    EXPECT_TRUE(stub_->GetTensor(&context, request, &response).ok()) << hours;
  }
}

TEST_F(TensorServiceTest, StreamOfOneChunkIsOneMessage) {
  grpc::ClientContext context;
  v1::StreamTensorRequest request;
  *request.mutable_spec() = Alibi(8, 64, v1::FORM_DENSE);
  const auto reader = stub_->StreamTensor(&context, request);
  v1::StreamTensorResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_TRUE(response.has_header());
  EXPECT_EQ(response.data().size(), 8U * 64 * 64 * 4);
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(TensorServiceTest, CachedAnswerWaitsForNoThread) {
  const v1::TensorSpec spec = Alibi(8, 4, v1::FORM_DENSE);
  for (const char* method : {"GetTensor", "StreamTensor"}) {
    const bool streams = method == std::string("StreamTensor");
    for (const char* count : {"1", "2"}) {
      std::string data;
      const grpc::Status status = streams ? Stream(spec, kAll, &data) : Get(spec, &data);
      ASSERT_TRUE(status.ok());
      AwaitEnd();
      EXPECT_EQ(PhaseCount(method, "wait"), "1") << method;
      for (const char* phase : {"plan", "compute", "write"}) {
        EXPECT_EQ(PhaseCount(method, phase), count) << method << phase;
      }
    }
  }
}

TEST_F(TensorServiceTest, MemoDistinguishesStreamFromGet) {
  grpc::ClientContext context;
  v1::StreamTensorRequest request;
  *request.mutable_spec() = Alibi(8, 4, v1::FORM_DENSE);
  request.set_read_limit(16);
  const auto reader = stub_->StreamTensor(&context, request);
  v1::StreamTensorResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.data().size(), 16U);
  EXPECT_TRUE(reader->Finish().ok());
  grpc::ClientContext other;
  v1::GetTensorRequest with_unknown_field;
  with_unknown_field.ParseFromString(request.SerializeAsString());
  v1::GetTensorResponse got;
  EXPECT_EQ(stub_->GetTensor(&other, with_unknown_field, &got).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(TensorServiceTest, RejectedCallCountsOnlyReachedPhases) {
  std::string data;
  ASSERT_FALSE(Get(Alibi(0, 4, v1::FORM_DENSE), &data).ok());
  AwaitEnd();
  EXPECT_EQ(PhaseCount("GetTensor", "plan"), "1");
  EXPECT_EQ(PhaseCount("GetTensor", "wait"), "1");
  EXPECT_EQ(PhaseCount("GetTensor", "compute"), "0");
  EXPECT_EQ(PhaseCount("GetTensor", "write"), "0");
}

TEST_F(TensorServiceTest, DrainingErrorHasNoRetryDelay) {
  server_state_.draining = true;
  std::string data;
  const grpc::Status status = Get(Alibi(1, 4, v1::FORM_DENSE), &data);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "DRAINING");
  // Another replica may answer immediately.
  for (const auto& detail : details.details()) {
    EXPECT_FALSE(detail.Is<google::rpc::RetryInfo>());
  }
  EXPECT_EQ(trailers_.count("grpc-retry-pushback-ms"), 0U);
  EXPECT_EQ(Stream(Alibi(1, 4, v1::FORM_DENSE), kAll, &data).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TensorServiceTest, CallIsOneTaskOrNoneIfCached) {
  const v1::TensorSpec spec = Alibi(8, 4, v1::FORM_DENSE);
  std::string first;
  ASSERT_TRUE(Get(spec, &first).ok());
  EXPECT_EQ(executor_.tasks, 1) << "the task that plans computes and answers";
  std::string streamed;
  ASSERT_TRUE(Stream(spec, kAll, &streamed).ok());
  EXPECT_EQ(executor_.tasks, 2) << "another method is planned separately";
  for (const bool streams : {false, true}) {
    std::string data;
    EXPECT_TRUE((streams ? Stream(spec, kAll, &data) : Get(spec, &data)).ok());
    EXPECT_TRUE(data == first);
  }
  EXPECT_EQ(executor_.tasks, 2);
}

constexpr int kLogitHeads = 2;
constexpr int kLogitDim = 4;

// Returns a first request, for Shaw's logits over `rows` queries and `keys` keys.
v1::ComputeLogitsRequest ShawSpec(int rows, int keys) {
  v1::ComputeLogitsRequest request;
  v1::LogitsSpec& spec = *request.mutable_spec();
  spec.set_num_heads(kLogitHeads);
  spec.set_head_dim(kLogitDim);
  spec.set_query_length(rows);
  spec.set_key_length(keys);
  spec.set_alignment(v1::ALIGNMENT_START);
  spec.set_direction(v1::DIRECTION_BIDIRECTIONAL);
  v1::RelativeTable& shaw = *spec.mutable_shaw_keys();
  shaw.set_left(1);
  shaw.set_right(0);
  v1::InlineTable& table = *shaw.mutable_table()->mutable_inline_table();
  table.set_data_type(v1::DATA_TYPE_F32);
  table.add_shape(2);
  table.add_shape(kLogitDim);
  table.set_data(std::string(sizeof(float) * 2 * kLogitDim, '\0'));
  return request;
}

v1::ComputeLogitsRequest ZeroRows(int rows) {
  v1::ComputeLogitsRequest request;
  request.set_num_rows(rows);
  request.set_data(std::string(sizeof(float) * kLogitHeads * rows * kLogitDim, '\0'));
  return request;
}

TEST_F(TensorServiceTest, CancelledLogitsReleaseAllMemory) {
  CancelAnywhere(50, [this](std::minstd_rand& random) {
    grpc::ClientContext context;
    const auto call = stub_->ComputeLogits(&context);
    // After more calls, Write would wait for answers to be read.
    bool going = call->Write(ShawSpec(100, 3000));
    for (int sent = 0; going && sent < 2; ++sent) {
      going = call->Write(ZeroRows(100));
    }
    return CancelAfter<v1::ComputeLogitsResponse>(context, *call, random, 8);
  });
  EXPECT_EQ(engine_.budget().used(), 0);
}

TEST_F(TensorServiceTest, DrainClosesIdleLogits) {
  grpc::ClientContext context;
  const auto call = stub_->ComputeLogits(&context);
  v1::ComputeLogitsResponse response;
  ASSERT_TRUE(call->Write(ShawSpec(5, 7)));
  ASSERT_TRUE(call->Read(&response));
  server_state_.draining = true;
  watchdog_.CloseIdle(Draining());
  EXPECT_FALSE(call->Read(&response));
  EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TensorServiceTest, CancelledStreamReleasesAllMemory) {
  CancelAnywhere(50, [this](std::minstd_rand& random) {
    std::string data;
    const int length = 100 + static_cast<int>(random() % 300);
    return Stream(Alibi(4, length, v1::FORM_DENSE), static_cast<int>(random() % 100), &data);
  });
  EXPECT_EQ(engine_.budget().used(), engine_.cached_bytes());
}

}  // namespace
}  // namespace attnbias::tensor_service_test
