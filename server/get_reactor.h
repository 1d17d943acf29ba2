// SPDX-License-Identifier: Apache-2.0
// The life of one GetTensor.
#ifndef ATTNBIAS_SERVER_GET_REACTOR_H_
#define ATTNBIAS_SERVER_GET_REACTOR_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"
#include "core/engine/engine.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/call_reactor.h"
#include "server/plan_memo.h"

namespace attnbias {

// planning (unless remembered) -> computing (unless kept) -> answered.
// Whichever step is the last calls End.
class GetReactor final : public CallReactor<grpc::ServerUnaryReactor> {
 public:
  GetReactor(CallEnvironment* environment, grpc::CallbackServerContext* context,
             const grpc::ByteBuffer* request, grpc::ByteBuffer* response);

 private:
  bool AnswerAtOnce();
  void Plan();
  absl::StatusOr<PlanPtr> MakePlan();
  absl::Status SetPlanned(const PlanPtr& plan, v1::TensorHeader header);
  void Compute();
  void Answer(PayloadPtr payload);
  void Send(const Chunk& chunk);

  const grpc::ByteBuffer& request_;
  grpc::ByteBuffer& response_;
  PlannedRequestPtr planned_;
  PayloadPtr payload_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_GET_REACTOR_H_
