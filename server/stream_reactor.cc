// SPDX-License-Identifier: Apache-2.0
#include "server/stream_reactor.h"

#include <algorithm>
#include <utility>

#include "core/base/status_macros.h"
#include "server/frame.h"

namespace attnbias {

StreamReactor::StreamReactor(CallEnvironment* environment,
                             grpc::CallbackServerContext* context,
                             const grpc::ByteBuffer* request)
    : OutputPump(environment, Method::kStreamTensor, context),
      request_(*request) {
  Begin(request_, [this] { Plan(); });
}

void StreamReactor::Plan() {
  if (absl::Status status = MakePlan(); !status.ok()) return End(status);
  GetHeader(plan_, [this](v1::TensorHeader header) {
    header_ = FrameHeader<v1::StreamTensorResponse>(std::move(header));
    absl::Status status =
        CheckHeaderSize(static_cast<int64_t>(header_.Length()));
    if (!status.ok()) return End(status);
    GetPayload(plan_,
               [this](PayloadPtr payload) { Stream(std::move(payload)); });
  });
}

absl::Status StreamReactor::MakePlan() {
  ATTNBIAS_ASSIGN_OR_RETURN(auto request,
                            call_.Parse<v1::StreamTensorRequest>(request_));
  ATTNBIAS_ASSIGN_OR_RETURN(plan_,
                            call_.MakePlan(std::move(*request.mutable_spec())));
  ATTNBIAS_ASSIGN_OR_RETURN(window_, ResolveStream(request, *plan_));
  return absl::OkStatus();
}

void StreamReactor::Stream(PayloadPtr payload) {
  payload_ = std::move(payload);
  made_ = window_.bytes.begin;
  mutex_.Lock();
  Put({std::exchange(header_, grpc::ByteBuffer()), 0});
  ProceedAndUnlock();
}

void StreamReactor::Make() {
  const int64_t size = std::min(window_.chunk_bytes, window_.bytes.end - made_);
  payload_->Read(made_, size, [this, size](absl::StatusOr<Chunk> chunk) {
    if (!chunk.ok()) return Made(chunk.status());
    v1::StreamTensorResponse response;
    response.set_offset(made_);
    made_ += size;
    Made(Message{FrameChunk(std::move(response), *chunk), size});
  });
}

}  // namespace attnbias
