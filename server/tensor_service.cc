// SPDX-License-Identifier: Apache-2.0
#include "server/tensor_service.h"

#include <utility>

#include "core/base/status_macros.h"
#include "server/call_reactor.h"
#include "server/frame.h"
#include "server/get_reactor.h"
#include "server/list_tables.h"
#include "server/logits_reactor.h"
#include "server/stream_reactor.h"

namespace attnbias {
namespace {

class Describe final : public CallReactor<grpc::ServerUnaryReactor> {
 public:
  Describe(CallEnvironment* environment, grpc::CallbackServerContext* context,
           const grpc::ByteBuffer* request, grpc::ByteBuffer* response)
      : CallReactor(environment, Method::kDescribeTensor, context),
        request_(*request),
        response_(*response) {
    Begin(request_, [this] {
      absl::StatusOr<PlanPtr> plan = MakePlan();
      if (!plan.ok()) return End(plan.status());
      GetHeader(*plan,
                [this](v1::TensorHeader header) { Answer(std::move(header)); });
    });
  }

 private:
  absl::StatusOr<PlanPtr> MakePlan() {
    ATTNBIAS_ASSIGN_OR_RETURN(auto request,
                              call_.Parse<v1::DescribeTensorRequest>(request_));
    return call_.MakePlan(std::move(*request.mutable_spec()));
  }

  void Answer(v1::TensorHeader header) {
    response_ = FrameHeader<v1::DescribeTensorResponse>(std::move(header));
    const absl::Status status =
        CheckHeaderSize(static_cast<int64_t>(response_.Length()));
    if (status.ok()) call_.AnswerSent();
    End(status);
  }

  const grpc::ByteBuffer& request_;
  grpc::ByteBuffer& response_;
};

}  // namespace

TensorService::TensorService(CallEnvironment* environment,
                             std::function<v1::GetServerInfoResponse()> info)
    : environment_(*environment), info_(std::move(info)) {}

grpc::ServerUnaryReactor* TensorService::DescribeTensor(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return new Describe(&environment_, context, request, response);
}

grpc::ServerUnaryReactor* TensorService::GetTensor(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return new GetReactor(&environment_, context, request, response);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* TensorService::StreamTensor(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return new StreamReactor(&environment_, context, request);
}

grpc::ServerUnaryReactor* TensorService::ListTables(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return OneStep::Start<v1::ListTablesRequest, v1::ListTablesResponse>(
      &environment_, Method::kListTables, context, request, response,
      [](Call& call, const auto& asked, v1::ListTablesResponse* answer) {
        return attnbias::ListTables(asked, *call.tables(), answer);
      });
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
TensorService::ComputeLogits(grpc::CallbackServerContext* context) {
  return new LogitsReactor(&environment_, context);
}

grpc::ServerUnaryReactor* TensorService::GetServerInfo(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return OneStep::Start<v1::GetServerInfoRequest, v1::GetServerInfoResponse>(
      &environment_, Method::kGetServerInfo, context, request, response,
      [this](Call&, const auto&, v1::GetServerInfoResponse* answer) {
        *answer = info_();
        return absl::OkStatus();
      });
}

}  // namespace attnbias
