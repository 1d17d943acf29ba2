// SPDX-License-Identifier: Apache-2.0
#include "server/oip/infer_reactor.h"

#include <cstdint>
#include <utility>

#include "core/base/status_macros.h"

namespace attnbias {

InferReactor::InferReactor(CallEnvironment* environment,
                           InferenceStatistics* statistics,
                           grpc::CallbackServerContext* context,
                           const grpc::ByteBuffer* request,
                           grpc::ByteBuffer* response)
    : CallReactor(environment, Method::kModelInfer, context),
      statistics_(*statistics),
      start_(std::chrono::steady_clock::now()),
      request_bytes_(*request),
      response_(*response) {
  Begin(request_bytes_, [this] {
    if (absl::Status status = MakePlan(); !status.ok()) return End(status);
    GetPayload(plan_, [this](PayloadPtr payload) {
      payload_ = std::move(payload);
      ReadNext();
    });
  });
}

InferReactor::~InferReactor() {
  if (model_ == nullptr) return;
  statistics_.Add(*model_, answered_,
                  std::chrono::steady_clock::now() - start_);
}

absl::Status InferReactor::MakePlan() {
  ATTNBIAS_ASSIGN_OR_RETURN(
      auto request, call_.Parse<inference::ModelInferRequest>(request_bytes_));
  ATTNBIAS_ASSIGN_OR_RETURN(model_, Model::Find("model_", request.model_name(),
                                                request.model_version()));
  ATTNBIAS_ASSIGN_OR_RETURN(request_,
                            DecodeInferRequest(*model_, std::move(request)));
  ATTNBIAS_ASSIGN_OR_RETURN(plan_,
                            call_.MakePlan(std::move(request_.spec), ""));
  ATTNBIAS_ASSIGN_OR_RETURN(outputs_, ChooseOutputs(request_, *plan_));
  pieces_ = Pieces(outputs_);
  return CheckUnarySize(outputs_);
}

void InferReactor::ReadNext() {
  call_.phases().Enter(Phase::kCompute);
  const Range bytes = pieces_.Take().bytes;
  payload_->Read(
      bytes.begin, bytes.size(), [this](absl::StatusOr<Chunk> chunk) {
        if (caller_->cancelled()) return End(call_.WhyCancelled());
        if (!chunk.ok()) return End(chunk.status());
        chunks_.push_back(*std::move(chunk));
        if (pieces_.AreAllTaken()) return Answer();
        call_.phases().Enter(Phase::kWait);
        call_.environment().executor.Continue(caller_, [this] { ReadNext(); });
      });
}

void InferReactor::Answer() {
  response_ = FrameInferResponse(*model_, request_, *plan_, outputs_, chunks_);
  int64_t bytes = 0;
  for (const Part& part : outputs_) bytes += part.size_bytes;
  call_.AnswerSent(bytes);
  answered_ = true;
  End(absl::OkStatus());
}

}  // namespace attnbias
