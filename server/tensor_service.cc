// SPDX-License-Identifier: Apache-2.0
#include "server/tensor_service.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attnbias/v1/service.grpc.pb.h"
#include "core/base/errors.h"
#include "core/engine/engine.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/call_reactor.h"
#include "server/frame.h"
#include "server/limits.h"
#include "server/list_tables.h"
#include "server/logits_reactor.h"
#include "server/output_pump.h"
#include "server/plan_memo.h"

namespace attnbias {
namespace {

class DescribeReactor final : public CallReactor<grpc::ServerUnaryReactor> {
 public:
  DescribeReactor(CallEnvironment* environment,
                  grpc::CallbackServerContext* context,
                  const grpc::ByteBuffer* request, grpc::ByteBuffer* response)
      : CallReactor(environment, Method::kDescribeTensor, context) {
    Begin(*request, [this, request, response] {
      const absl::StatusOr<PlanPtr> plan = MakePlan(*request);
      if (!plan.ok()) return End(plan.status());
      GetHeader(*plan, [this, response](const v1::TensorHeader& header) {
        *response = FrameHeader<v1::DescribeTensorResponse>(header);
        const absl::Status status =
            CheckHeaderSize(static_cast<int64_t>(response->Length()));
        if (status.ok()) call_.AnswerSent();
        End(status);
      });
    });
  }

 private:
  absl::StatusOr<PlanPtr> MakePlan(const grpc::ByteBuffer& bytes) {
    ATTNBIAS_ASSIGN_OR_RETURN(auto request,
                              call_.Parse<v1::DescribeTensorRequest>(bytes));
    return call_.MakePlan(std::move(*request.mutable_spec()));
  }
};

absl::Status TooLargeForGet(const std::string& got, int64_t want) {
  return WithReason(Invalid("spec: got ", got, " bytes, want at most ", want,
                            " for GetTensor; StreamTensor has no such limit"),
                    "TENSOR_TOO_LARGE_FOR_UNARY");
}

std::string Flatten(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  if (!buffer.DumpToSingleSlice(&slice).ok()) return "";
  return {slice.begin(), slice.end()};
}

// The life of one GetTensor: planning (unless remembered) -> computing (unless
// kept) -> answered. Whichever step is the last calls End.
class GetReactor final : public CallReactor<grpc::ServerUnaryReactor> {
 public:
  GetReactor(CallEnvironment* environment, grpc::CallbackServerContext* context,
             const grpc::ByteBuffer* request, grpc::ByteBuffer* response)
      : CallReactor(environment, Method::kGetTensor, context),
        request_(*request),
        response_(*response) {
    if (absl::Status status = call_.CheckWanted(); !status.ok()) {
      End(status);
      return;
    }
    if (!AnswerAtOnce()) Begin(request_, [this] { Prepare(); });
  }

 private:
  // On gRPC's thread, where that is done in no time: a change of thread would
  // take longer.
  bool AnswerAtOnce() {
    if (request_.Length() > PlanMemo::kMaxRememberedBytes) return false;
    CallEnvironment& environment = call_.environment();
    planned_ = environment.plan_memo.Find(Flatten(request_), call_.tables());
    if (planned_ == nullptr) return false;
    call_.SetPlan(planned_->plan);
    if (planned_->plan->total_bytes() > kInlineBytes) return false;
    PayloadPtr kept = environment.engine.Find(planned_->plan, caller_);
    if (kept == nullptr || !kept->IsReadAtOnce()) return false;
    if (absl::Status status = Admit(request_); !status.ok()) {
      End(status);
    } else {
      Answer(std::move(kept));
    }
    return true;
  }

  void Prepare() {
    if (planned_ != nullptr) return Compute();
    absl::StatusOr<PlanPtr> plan = MakePlan();
    if (!plan.ok()) return End(plan.status());
    GetHeader(*plan, [this, plan = *plan](const v1::TensorHeader& header) {
      absl::Status status = SetPlanned(plan, header);
      if (!status.ok()) return End(status);
      Compute();
    });
  }

  absl::StatusOr<PlanPtr> MakePlan() {
    ATTNBIAS_ASSIGN_OR_RETURN(auto request,
                              call_.Parse<v1::GetTensorRequest>(request_));
    ATTNBIAS_ASSIGN_OR_RETURN(
        PlanPtr plan, call_.MakePlan(std::move(*request.mutable_spec())));
    const int64_t payload = plan->total_bytes();
    if (payload > kMaxUnaryBytes) {
      return TooLargeForGet(absl::StrCat("a tensor of ", payload),
                            kMaxUnaryBytes);
    }
    return plan;
  }

  absl::Status SetPlanned(const PlanPtr& plan, const v1::TensorHeader& header) {
    planned_ = std::make_shared<const PlannedRequest>(
        PlannedRequest{plan, SerializeHeader<v1::GetTensorResponse>(header)});
    const auto size = static_cast<int64_t>(planned_->header.size());
    ATTNBIAS_RETURN_IF_ERROR(CheckHeaderSize(size));
    // More than the fields of a GetTensorResponse take beside header and data.
    constexpr int64_t kFramingBytes = 64;
    constexpr int64_t kMost = kMaxUnaryResponseBytes - kFramingBytes;
    if (plan->total_bytes() + size > kMost) {
      return TooLargeForGet(absl::StrCat("a tensor and its header of ",
                                         plan->total_bytes(), " + ", size),
                            kMost);
    }
    if (request_.Length() <= PlanMemo::kMaxRememberedBytes) {
      call_.environment().plan_memo.Insert(Flatten(request_), call_.tables(),
                                           planned_);
    }
    return absl::OkStatus();
  }

  void Compute() {
    GetPayload(planned_->plan,
               [this](PayloadPtr payload) { Answer(std::move(payload)); });
  }

  void Answer(PayloadPtr payload) {
    payload_ = std::move(payload);
    call_.phases().Enter(Phase::kCompute);
    const int64_t size = payload_->size_bytes();
    payload_->Read(0, size, [this, size](absl::StatusOr<Chunk> chunk) {
      if (!chunk.ok()) {
        return End(caller_->cancelled() ? call_.WhyCancelled()
                                        : chunk.status());
      }
      response_ = FrameTensor(planned_->header, *chunk);
      call_.AnswerSent(size);
      End(absl::OkStatus());
    });
  }

  const grpc::ByteBuffer& request_;
  grpc::ByteBuffer& response_;
  PlannedRequestPtr planned_;
  PayloadPtr payload_;
};

// The life of one StreamTensor: planning -> computing (unless kept) ->
// streaming -> ended.
class StreamReactor final
    : public OutputPump<grpc::ServerWriteReactor<grpc::ByteBuffer>> {
 public:
  StreamReactor(CallEnvironment* environment,
                grpc::CallbackServerContext* context,
                const grpc::ByteBuffer* request)
      : OutputPump(environment, Method::kStreamTensor, context) {
    Begin(*request, [this, request] { Prepare(*request); });
  }

 private:
  void Prepare(const grpc::ByteBuffer& request) {
    if (absl::Status status = MakePlan(request); !status.ok()) {
      return End(status);
    }
    GetHeader(plan_, [this](const v1::TensorHeader& header) {
      header_ = FrameHeader<v1::StreamTensorResponse>(header);
      absl::Status status =
          CheckHeaderSize(static_cast<int64_t>(header_.Length()));
      if (!status.ok()) return End(status);
      GetPayload(plan_,
                 [this](PayloadPtr payload) { Stream(std::move(payload)); });
    });
  }

  absl::Status MakePlan(const grpc::ByteBuffer& bytes) {
    ATTNBIAS_ASSIGN_OR_RETURN(auto request,
                              call_.Parse<v1::StreamTensorRequest>(bytes));
    ATTNBIAS_ASSIGN_OR_RETURN(
        plan_, call_.MakePlan(std::move(*request.mutable_spec())));
    ATTNBIAS_ASSIGN_OR_RETURN(window_, ResolveStream(request, *plan_));
    return absl::OkStatus();
  }

  void Stream(PayloadPtr payload) {
    payload_ = std::move(payload);
    made_ = window_.bytes.begin;
    mutex_.Lock();
    Put({std::exchange(header_, grpc::ByteBuffer()), 0});
    ProceedAndUnlock();
  }

  void Make() override {
    const int64_t size =
        std::min(window_.chunk_bytes, window_.bytes.end - made_);
    payload_->Read(made_, size, [this, size](absl::StatusOr<Chunk> chunk) {
      if (!chunk.ok()) return Made(chunk.status());
      v1::StreamTensorResponse response;
      response.set_offset(made_);
      made_ += size;
      Made(Message{FrameChunk(std::move(response), *chunk), size});
    });
  }
  bool HasWork() override { return made_ < window_.bytes.end; }
  bool AwaitsClient() override { return false; }

  // Set before streaming begins.
  PlanPtr plan_;
  StreamWindow window_;
  grpc::ByteBuffer header_;
  PayloadPtr payload_;

  int64_t made_ = 0;  // end of what has been made, in the payload
};

absl::Status CheckStreamFields(const v1::StreamTensorRequest& request) {
  for (const auto& [field, value] :
       {std::pair("read_offset", request.read_offset()),
        std::pair("read_limit", request.read_limit())}) {
    if (value >= 0) continue;
    return Invalid(field, ": got ", value, ", want an integer of at least 0");
  }
  if (request.read_offset() != 0 && request.expected_fingerprint().empty()) {
    return Invalid(
        "expected_fingerprint: not set, want the header's fingerprint where "
        "read_offset is not 0");
  }
  const int64_t chunk = request.max_chunk_bytes();
  if (chunk != 0 && (chunk < kMinChunkBytes || chunk > kMaxChunkBytes)) {
    return Invalid("max_chunk_bytes: got ", chunk,
                   ", want 0 or an integer in [", kMinChunkBytes, ", ",
                   kMaxChunkBytes, "]");
  }
  return absl::OkStatus();
}

// All methods see raw messages: payloads are not copied, and what is no message
// is answered, logged and counted like any bad request.
using TensorMethods = v1::AttentionBiasService;
using RawTensorMethods = TensorMethods::WithRawCallbackMethod_DescribeTensor<
    TensorMethods::WithRawCallbackMethod_GetTensor<
        TensorMethods::WithRawCallbackMethod_StreamTensor<
            TensorMethods::WithRawCallbackMethod_ListTables<
                TensorMethods::WithRawCallbackMethod_ComputeLogits<
                    TensorMethods::WithRawCallbackMethod_GetServerInfo<
                        TensorMethods::Service>>>>>>;

class TensorService final : public RawTensorMethods {
 public:
  TensorService(CallEnvironment* environment,
                std::function<v1::GetServerInfoResponse()> info)
      : environment_(environment), info_(std::move(info)) {}

  grpc::ServerUnaryReactor* DescribeTensor(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
      grpc::ByteBuffer* response) override {
    return new DescribeReactor(environment_, context, request, response);
  }

  grpc::ServerUnaryReactor* GetTensor(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override {
    return new GetReactor(environment_, context, request, response);
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* StreamTensor(
      grpc::CallbackServerContext* context,
      const grpc::ByteBuffer* request) override {
    return new StreamReactor(environment_, context, request);
  }

  grpc::ServerUnaryReactor* ListTables(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override {
    return OneStep::Start<v1::ListTablesRequest, v1::ListTablesResponse>(
        environment_, Method::kListTables, context, request, response,
        [](Call& call, const auto& asked, v1::ListTablesResponse* answer) {
          return attnbias::ListTables(asked, *call.tables(), answer);
        });
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ComputeLogits(
      grpc::CallbackServerContext* context) override {
    return attnbias::ComputeLogits(environment_, context);
  }

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override {
    return OneStep::Start<v1::GetServerInfoRequest, v1::GetServerInfoResponse>(
        environment_, Method::kGetServerInfo, context, request, response,
        [this](Call&, const auto&, v1::GetServerInfoResponse* answer) {
          *answer = info_();
          return absl::OkStatus();
        });
  }

 private:
  CallEnvironment* const environment_;
  const std::function<v1::GetServerInfoResponse()> info_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeTensorService(
    CallEnvironment* environment,
    std::function<v1::GetServerInfoResponse()> info) {
  return std::make_unique<TensorService>(environment, std::move(info));
}

absl::StatusOr<StreamWindow> ResolveStream(
    const v1::StreamTensorRequest& request, const Plan& plan) {
  ATTNBIAS_RETURN_IF_ERROR(CheckStreamFields(request));
  const std::string& expected = request.expected_fingerprint();
  if (!expected.empty() && expected != plan.fingerprint()) {
    return absl::FailedPreconditionError(
        absl::StrCat("expected_fingerprint: this server would send ",
                     plan.fingerprint(), "; start again from offset 0"));
  }
  const int64_t total = plan.total_bytes();
  const int64_t begin = request.read_offset();
  if (begin > total) {
    return absl::OutOfRangeError(absl::StrCat("read_offset: got ", begin,
                                              ", want at most ", total,
                                              ", the size of the payload"));
  }
  StreamWindow window;
  window.bytes = {begin, total};
  if (request.read_limit() != 0) {
    window.bytes.end = begin + std::min(request.read_limit(), total - begin);
  }
  window.chunk_bytes = request.max_chunk_bytes() == 0
                           ? kDefaultChunkBytes
                           : request.max_chunk_bytes();
  return window;
}

}  // namespace attnbias
