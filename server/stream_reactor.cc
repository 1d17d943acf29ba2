// SPDX-License-Identifier: Apache-2.0
#include "server/stream_reactor.h"

#include <algorithm>
#include <utility>

#include "core/base/status_macros.h"
#include "server/codec/spec_codec.h"
#include "server/frame.h"
#include "server/limits.h"

namespace attnbias {

StreamReactor::StreamReactor(CallEnvironment* environment,
                             grpc::CallbackServerContext* context,
                             const grpc::ByteBuffer* request)
    : call_(environment, Method::kStreamTensor, context), request_(*request) {}

void StreamReactor::Start() {
  call_.stall_entry().Register();
  if (absl::Status status = call_.CheckWanted(); !status.ok()) {
    return End(status);
  }
  if (static_cast<int64_t>(request_.Length()) <= kInlineBytes) return Plan();
  Schedule([this] { Plan(); });
}

template <typename Step>
void StreamReactor::Schedule(Step step) {
  if (!call_.environment().executor.Schedule(std::move(step))) {
    End(QueueFull());
  }
}

void StreamReactor::Plan() {
  absl::StatusOr<PlanPtr> plan = MakePlan();
  if (!plan.ok()) return End(plan.status());
  plan_ = *std::move(plan);
  PayloadPtr kept = call_.environment().engine.Find(plan_);
  if (kept != nullptr) return Stream(std::move(kept));
  Schedule([this] { Compute(); });
}

void StreamReactor::Compute() {
  call_.environment().engine.Get(plan_, cancellation_,
                                 [this](absl::StatusOr<PayloadPtr> payload) {
                                   if (cancellation_->cancelled())
                                     return End(call_.WhyCancelled());
                                   if (!payload.ok())
                                     return End(payload.status());
                                   Stream(*std::move(payload));
                                 });
}

absl::StatusOr<PlanPtr> StreamReactor::MakePlan() {
  ATTNBIAS_RETURN_IF_ERROR(call_.CheckWanted());
  ATTNBIAS_RETURN_IF_ERROR(call_.HoldMemoryFor(request_));
  absl::StatusOr<v1::StreamTensorRequest> request =
      ParseRequest<v1::StreamTensorRequest>(request_);
  ATTNBIAS_RETURN_IF_ERROR(request.status());
  absl::StatusOr<PlanPtr> plan = call_.MakePlan(request->spec());
  ATTNBIAS_RETURN_IF_ERROR(plan.status());
  absl::StatusOr<StreamWindow> window = ResolveStream(*request, **plan);
  ATTNBIAS_RETURN_IF_ERROR(window.status());
  window_ = *window;
  header_ = FrameStreamHeader(EncodeHeader(**plan));
  ATTNBIAS_RETURN_IF_ERROR(
      CheckHeaderSize(static_cast<int64_t>(header_.Length())));
  return plan;
}

void StreamReactor::Stream(PayloadPtr payload) {
  payload_ = std::move(payload);
  std::unique_lock<std::mutex> lock(mutex_);
  made_ = window_.bytes.begin;
  next_ = Message{std::exchange(header_, grpc::ByteBuffer()), 0};
  Proceed(std::move(lock));
}

void StreamReactor::OnWriteDone(bool ok) {
  call_.stall_entry().WriteDone();
  std::unique_lock<std::mutex> lock(mutex_);
  writing_ = false;
  written_.bytes.Clear();
  if (ok) {
    call_.MessageSent();
    call_.BytesSent(written_.size);
    call_.environment().metrics.StreamBytesSent(written_.size);
  } else {
    status_.Update(call_.WhyCancelled());
  }
  Proceed(std::move(lock));
}

// gRPC and the executor are called without the lock: they may call back.
void StreamReactor::Proceed(std::unique_lock<std::mutex> lock) {
  if (cancellation_->cancelled()) status_.Update(call_.WhyCancelled());
  const bool write = !writing_ && status_.ok() && next_.has_value();
  if (write) {
    written_ = *std::move(next_);
    next_.reset();
    writing_ = true;
  }
  const bool make = !making_ && status_.ok() && !next_.has_value() &&
                    made_ < window_.bytes.end;
  if (make) making_ = true;
  const bool end = !writing_ && !making_ && !ended_;
  if (end) ended_ = true;
  const absl::Status status = status_;
  lock.unlock();
  if (write) Write();
  // While a chunk is being made the stream cannot end, so this object lives.
  if (make) ScheduleChunk();
  if (end) End(status);
}

void StreamReactor::Write() {
  call_.stall_entry().WriteStarted();
  grpc::WriteOptions options;
  options.set_no_compression();
  StartWrite(&written_.bytes, options);
}

void StreamReactor::ScheduleChunk() {
  // A stream under way is not refused for a full queue.
  if (!call_.environment().executor.Schedule([this] { MakeChunk(); })) {
    MakeChunk();
  }
}

void StreamReactor::MakeChunk() {
  // Nobody else changes made_ meanwhile.
  const int64_t begin = made_;
  const int64_t size = std::min(window_.chunk_bytes, window_.bytes.end - begin);
  absl::StatusOr<Chunk> chunk = absl::CancelledError();
  if (!cancellation_->cancelled()) chunk = payload_->Read(begin, size);
  std::unique_lock<std::mutex> lock(mutex_);
  making_ = false;
  if (chunk.ok()) {
    made_ = begin + size;
    next_ = Message{FrameStreamChunk(*chunk, begin), size};
  } else if (!cancellation_->cancelled()) {
    status_.Update(chunk.status());
  }
  Proceed(std::move(lock));
}

}  // namespace attnbias
