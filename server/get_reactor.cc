// SPDX-License-Identifier: Apache-2.0
#include "server/get_reactor.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "server/codec/spec_codec.h"
#include "server/frame.h"
#include "server/grpc_status.h"
#include "server/limits.h"

namespace attnbias {
namespace {

absl::Status TooLarge(const std::string& got, int64_t want) {
  return WithReason(Invalid("spec: got ", got, " bytes, want at most ", want,
                            " for GetTensor; StreamTensor has no such limit"),
                    "TENSOR_TOO_LARGE_FOR_UNARY");
}

// HTTP/2 lets a server send so much before the client has read anything. A
// smaller answer is not held up.
constexpr size_t kFirstWindowBytes = 65535;

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
  Begin(request_, [this] { Plan(); });
}

void GetReactor::Plan() {
  absl::StatusOr<PlannedRequestPtr> planned = MakePlan();
  if (!planned.ok()) return End(planned.status());
  planned_ = *std::move(planned);
  PayloadPtr kept = call_.environment().engine.Find(planned_->plan);
  if (kept == nullptr) return Schedule([this] { Compute(); });
  if (planned_->plan->total_bytes() <= kInlineBytes) return Answer(*kept);
  Schedule([this, kept = std::move(kept)] { Answer(*kept); });
}

absl::StatusOr<PlannedRequestPtr> GetReactor::MakePlan() {
  PlanMemo& memo = call_.environment().plan_memo;
  const bool small = request_.Length() <= PlanMemo::kMaxRememberedBytes;
  std::string bytes = small ? Flatten(request_) : "";
  if (PlannedRequestPtr known =
          small ? memo.Find(bytes, call_.tables()) : nullptr) {
    call_.SetPlan(known->plan);
    return known;
  }
  ATTNBIAS_RETURN_IF_ERROR(call_.HoldMemoryFor(request_));
  ATTNBIAS_ASSIGN_OR_RETURN(const auto request,
                            ParseRequest<v1::GetTensorRequest>(request_));
  ATTNBIAS_ASSIGN_OR_RETURN(const PlanPtr plan, call_.MakePlan(request.spec()));
  const int64_t payload = plan->total_bytes();
  if (payload > kMaxUnaryBytes) {
    return TooLarge(absl::StrCat("a tensor of ", payload), kMaxUnaryBytes);
  }
  auto planned = std::make_shared<const PlannedRequest>(
      PlannedRequest{plan, EncodeHeader(*plan).SerializeAsString()});
  ATTNBIAS_RETURN_IF_ERROR(
      CheckHeaderSize(static_cast<int64_t>(planned->header.size())));
  constexpr int64_t kMost = kMaxUnaryResponseBytes - kFramingBytes;
  if (payload + static_cast<int64_t>(planned->header.size()) > kMost) {
    return TooLarge(absl::StrCat("a tensor and its header of ", payload, " + ",
                                 planned->header.size()),
                    kMost);
  }
  if (small) memo.Insert(std::move(bytes), call_.tables(), planned);
  return planned;
}

void GetReactor::Compute() {
  if (absl::Status status = call_.CheckWanted(); !status.ok()) {
    return End(status);
  }
  GetPayload(planned_->plan, [this](PayloadPtr payload) { Answer(*payload); });
}

void GetReactor::Answer(Payload& payload) {
  const int64_t bytes = planned_->plan->total_bytes();
  absl::StatusOr<Chunk> chunk = payload.Read(0, bytes);
  if (!chunk.ok()) return End(chunk.status());
  response_ = FrameTensor(planned_->header, *chunk);
  call_.MessageSent(bytes);
  if (response_.Length() > kFirstWindowBytes) {
    call_.stall_entry().Register();
    call_.stall_entry().WriteStarted();
  }
  End(absl::OkStatus());
}

}  // namespace attnbias
