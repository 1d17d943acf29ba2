// SPDX-License-Identifier: Apache-2.0
#include "server/tensor_service.h"

#include <utility>

#include "core/base/status_macros.h"
#include "server/call_reactor.h"
#include "server/codec/known.h"
#include "server/codec/spec_codec.h"
#include "server/frame.h"
#include "server/get_reactor.h"
#include "server/list_tables.h"
#include "server/logits_reactor.h"
#include "server/stream_reactor.h"

namespace attnbias {
namespace {

// A call that is answered in one step.
class OneStep final : public CallReactor<grpc::ServerUnaryReactor> {
 public:
  using CallReactor::CallReactor;

  // `make(call)` makes the answer and returns a status.
  template <typename Make>
  void Answer(Make make) {
    absl::Status status = call_.CheckWanted();
    if (status.ok()) status = make(call_);
    if (status.ok()) call_.MessageSent();
    End(status);
  }

  // The same, of a request that may be large.
  template <typename Make>
  void Answer(const grpc::ByteBuffer& request, Make make) {
    Begin(request, [this, make] { Answer(make); });
  }
};

absl::Status Describe(Call& call, const grpc::ByteBuffer& bytes,
                      grpc::ByteBuffer* response) {
  ATTNBIAS_RETURN_IF_ERROR(call.HoldMemoryFor(bytes));
  ATTNBIAS_ASSIGN_OR_RETURN(const auto request,
                            ParseRequest<v1::DescribeTensorRequest>(bytes));
  ATTNBIAS_ASSIGN_OR_RETURN(const PlanPtr plan, call.MakePlan(request.spec()));
  *response = FrameHeader<v1::DescribeTensorResponse>(EncodeHeader(*plan));
  return CheckHeaderSize(static_cast<int64_t>(response->Length()));
}

}  // namespace

TensorService::TensorService(CallEnvironment* environment,
                             std::function<v1::GetServerInfoResponse()> info)
    : environment_(*environment), info_(std::move(info)) {}

grpc::ServerUnaryReactor* TensorService::DescribeTensor(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  auto* call = new OneStep(&environment_, Method::kDescribeTensor, context);
  call->Answer(*request, [request, response](Call& call) {
    return Describe(call, *request, response);
  });
  return call;
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
    grpc::CallbackServerContext* context, const v1::ListTablesRequest* request,
    v1::ListTablesResponse* response) {
  auto* call = new OneStep(&environment_, Method::kListTables, context);
  call->Answer([request, response](Call& call) {
    ATTNBIAS_RETURN_IF_ERROR(CheckKnown(*request));
    return attnbias::ListTables(*request, *call.tables(), response);
  });
  return call;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
TensorService::ComputeLogits(grpc::CallbackServerContext* context) {
  return new LogitsReactor(&environment_, context);
}

grpc::ServerUnaryReactor* TensorService::GetServerInfo(
    grpc::CallbackServerContext* context,
    const v1::GetServerInfoRequest* request,
    v1::GetServerInfoResponse* response) {
  auto* call = new OneStep(&environment_, Method::kGetServerInfo, context);
  call->Answer([this, request, response](Call&) {
    ATTNBIAS_RETURN_IF_ERROR(CheckKnown(*request));
    *response = info_();
    return absl::OkStatus();
  });
  return call;
}

}  // namespace attnbias
