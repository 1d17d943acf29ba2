// SPDX-License-Identifier: Apache-2.0
#include "server/oip/stream_infer_reactor.h"

#include <utility>
#include <vector>

#include "core/base/status_macros.h"

namespace attnbias {

StreamInferReactor::StreamInferReactor(CallEnvironment* environment,
                                       InferenceStatistics* statistics,
                                       grpc::CallbackServerContext* context)
    : RequestPump(environment, Method::kModelStreamInfer, context),
      statistics_(*statistics) {
  Start();
}

void StreamInferReactor::Make() {
  if (IsUnfinished()) return MakePiece();
  const Incoming incoming = TakeRequest();
  if (absl::Status status = call_.CheckWanted(); !status.ok()) {
    return Made(status);
  }
  work_ = {.start = std::chrono::steady_clock::now()};
  if (!incoming.held.ok()) return Fail(incoming.held);
  auto request = call_.Parse<inference::ModelInferRequest>(incoming.bytes);
  if (!request.ok()) return Fail(request.status());
  work_.request.id = ShortenedId(*request);
  if (absl::Status status = MakePlan(*std::move(request)); !status.ok()) {
    return Fail(status);
  }
  TryGetPayload(work_.plan, [this](absl::StatusOr<PayloadPtr> payload) {
    if (!payload.ok()) return Fail(payload.status());
    work_.payload = *std::move(payload);
    MakePiece();
  });
}

absl::Status StreamInferReactor::MakePlan(
    inference::ModelInferRequest request) {
  ATTNBIAS_ASSIGN_OR_RETURN(
      work_.model,
      Model::Find("model_", request.model_name(), request.model_version()));
  ATTNBIAS_ASSIGN_OR_RETURN(
      work_.request, DecodeInferRequest(*work_.model, std::move(request)));
  ATTNBIAS_ASSIGN_OR_RETURN(work_.plan,
                            call_.MakePlan(std::move(work_.request.spec), ""));
  ATTNBIAS_ASSIGN_OR_RETURN(std::vector<Part> outputs,
                            ChooseOutputs(work_.request, *work_.plan));
  work_.pieces = Pieces(std::move(outputs));
  return absl::OkStatus();
}

void StreamInferReactor::MakePiece() {
  Piece piece = work_.pieces.Take();
  const Range bytes = piece.bytes;
  work_.payload->Read(
      bytes.begin, bytes.size(),
      [this, piece = std::move(piece)](absl::StatusOr<Chunk> chunk) {
        if (!chunk.ok()) return Fail(chunk.status());
        const bool last = !IsUnfinished();
        Message message{FrameStreamResponse(*work_.model, work_.request,
                                            *work_.plan, piece, last, *chunk),
                        piece.bytes.size()};
        if (last) EndWork(true);
        Made(std::move(message));
      });
}

// The stream goes on, unless nobody wants it any more.
void StreamInferReactor::Fail(const absl::Status& status) {
  if (caller_->cancelled()) return Made(status);
  Message message{FrameStreamError(work_.request.id, status), 0};
  EndWork(false);
  Made(std::move(message));
}

void StreamInferReactor::EndWork(bool success) {
  if (work_.model != nullptr) {
    statistics_.Add(*work_.model, success,
                    std::chrono::steady_clock::now() - work_.start);
  }
  work_ = Work();
  call_.ForgetRequest();
}

}  // namespace attnbias
