// SPDX-License-Identifier: Apache-2.0
#include "server/get_reactor.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "server/frame.h"
#include "server/limits.h"

namespace attnbias {
namespace {

absl::Status TooLarge(const std::string& got, int64_t want) {
  return WithReason(Invalid("spec: got ", got, " bytes, want at most ", want,
                            " for GetTensor; StreamTensor has no such limit"),
                    "TENSOR_TOO_LARGE_FOR_UNARY");
}

// More than the fields of a GetTensorResponse take beside header and data.
constexpr int64_t kFramingBytes = 64;

std::string Flatten(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  if (!buffer.DumpToSingleSlice(&slice).ok()) return "";
  return {slice.begin(), slice.end()};
}

}  // namespace

GetReactor::GetReactor(CallEnvironment* environment,
                       grpc::CallbackServerContext* context,
                       const grpc::ByteBuffer* request,
                       grpc::ByteBuffer* response)
    : CallReactor(environment, Method::kGetTensor, context),
      request_(*request),
      response_(*response) {
  if (absl::Status status = call_.CheckWanted(); !status.ok()) {
    End(status);
    return;
  }
  if (!AnswerAtOnce()) Begin(request_, [this] { Plan(); });
}

// On gRPC's thread, where that is done in no time: a change of thread would
// take longer.
bool GetReactor::AnswerAtOnce() {
  if (request_.Length() > PlanMemo::kMaxRememberedBytes) return false;
  CallEnvironment& environment = call_.environment();
  planned_ = environment.plan_memo.Find(Flatten(request_), call_.tables());
  if (planned_ == nullptr) return false;
  call_.SetPlan(planned_->plan);
  if (planned_->plan->total_bytes() > kInlineBytes) return false;
  PayloadPtr kept = environment.engine.Find(planned_->plan, caller_);
  if (kept == nullptr || !kept->IsReadAtOnce()) return false;
  absl::Status status = Admit(request_);
  if (!status.ok()) {
    End(status);
    return true;
  }
  Answer(std::move(kept));
  return true;
}

void GetReactor::Plan() {
  if (planned_ != nullptr) return Compute();
  absl::StatusOr<PlanPtr> plan = MakePlan();
  if (!plan.ok()) return End(plan.status());
  GetHeader(*plan, [this, plan = *plan](v1::TensorHeader header) {
    absl::Status status = SetPlanned(plan, std::move(header));
    if (!status.ok()) return End(status);
    Compute();
  });
}

absl::StatusOr<PlanPtr> GetReactor::MakePlan() {
  ATTNBIAS_ASSIGN_OR_RETURN(auto request,
                            call_.Parse<v1::GetTensorRequest>(request_));
  ATTNBIAS_ASSIGN_OR_RETURN(PlanPtr plan,
                            call_.MakePlan(std::move(*request.mutable_spec())));
  const int64_t payload = plan->total_bytes();
  if (payload > kMaxUnaryBytes) {
    return TooLarge(absl::StrCat("a tensor of ", payload), kMaxUnaryBytes);
  }
  return plan;
}

absl::Status GetReactor::SetPlanned(const PlanPtr& plan,
                                    v1::TensorHeader header) {
  planned_ = std::make_shared<const PlannedRequest>(PlannedRequest{
      plan, SerializeHeader<v1::GetTensorResponse>(std::move(header))});
  const auto size = static_cast<int64_t>(planned_->header.size());
  ATTNBIAS_RETURN_IF_ERROR(CheckHeaderSize(size));
  constexpr int64_t kMost = kMaxUnaryResponseBytes - kFramingBytes;
  if (plan->total_bytes() + size > kMost) {
    return TooLarge(absl::StrCat("a tensor and its header of ",
                                 plan->total_bytes(), " + ", size),
                    kMost);
  }
  if (request_.Length() <= PlanMemo::kMaxRememberedBytes) {
    call_.environment().plan_memo.Insert(Flatten(request_), call_.tables(),
                                         planned_);
  }
  return absl::OkStatus();
}

void GetReactor::Compute() {
  GetPayload(planned_->plan,
             [this](PayloadPtr payload) { Answer(std::move(payload)); });
}

void GetReactor::Answer(PayloadPtr payload) {
  payload_ = std::move(payload);
  call_.phases().Enter(Phase::kCompute);
  payload_->Read(0, payload_->size_bytes(),
                 [this](absl::StatusOr<Chunk> chunk) {
                   if (!chunk.ok()) {
                     return End(caller_->cancelled() ? call_.WhyCancelled()
                                                     : chunk.status());
                   }
                   Send(*chunk);
                 });
}

void GetReactor::Send(const Chunk& chunk) {
  response_ = FrameTensor(planned_->header, chunk);
  call_.AnswerSent(payload_->size_bytes());
  End(absl::OkStatus());
}

}  // namespace attnbias
