// SPDX-License-Identifier: Apache-2.0
// The life of one GetTensor.
#ifndef ATTNBIAS_SERVER_GET_REACTOR_H_
#define ATTNBIAS_SERVER_GET_REACTOR_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/cancellation.h"
#include "core/engine/engine.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/call.h"
#include "server/plan_memo.h"

namespace attnbias {

// planning -> computing (unless kept) -> answered. Finish is called once, at
// the end of whichever step is the last; OnCancel only sets a flag.
class GetReactor final : public grpc::ServerUnaryReactor {
 public:
  GetReactor(CallEnvironment* environment, grpc::CallbackServerContext* context,
             const grpc::ByteBuffer* request, grpc::ByteBuffer* response);

  // Once, after construction. The object deletes itself when the call is over.
  void Start();

  void OnCancel() override { cancellation_->Cancel(); }
  void OnDone() override { delete this; }

 private:
  ~GetReactor() override = default;

  // Runs `step` on a thread of the executor.
  template <typename Step>
  void Schedule(Step step);
  void Plan();
  absl::StatusOr<PlannedRequestPtr> MakePlan();
  void Compute();
  void Answer(Payload& payload);
  void End(const absl::Status& status) { Finish(call_.End(status)); }

  Call call_;
  const grpc::ByteBuffer& request_;
  grpc::ByteBuffer& response_;
  const CancellationPtr cancellation_ = std::make_shared<Cancellation>();
  PlannedRequestPtr planned_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_GET_REACTOR_H_
