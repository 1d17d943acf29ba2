// SPDX-License-Identifier: Apache-2.0
// What the reactors of all methods share.
#ifndef ATTNBIAS_SERVER_CALL_REACTOR_H_
#define ATTNBIAS_SERVER_CALL_REACTOR_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/cancellation.h"
#include "core/engine/engine.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/call.h"
#include "server/limits.h"

namespace attnbias {

// `Reactor` is gRPC's. The object deletes itself when the call is over: after
// End, which is called once, nothing may touch it.
template <typename Reactor>
class CallReactor : public Reactor {
 public:
  CallReactor(CallEnvironment* environment, Method method,
              grpc::CallbackServerContext* context)
      : call_(environment, method, context) {}

  void OnCancel() final { cancellation_->Cancel(); }
  void OnDone() final { delete this; }

 protected:
  ~CallReactor() override = default;

  void End(const absl::Status& status) { this->Finish(call_.End(status)); }

  // Runs `step` on a thread of the executor.
  template <typename Step>
  void Schedule(Step step) {
    if (!call_.environment().executor.Schedule(std::move(step))) {
      End(QueueFull());
    }
  }

  // Runs `step`, the first of the call: where `request` is large, on a thread
  // of the executor.
  template <typename Step>
  void Begin(const grpc::ByteBuffer& request, Step step) {
    if (absl::Status status = call_.CheckWanted(); !status.ok()) {
      return End(status);
    }
    if (static_cast<int64_t>(request.Length()) <= kInlineBytes) return step();
    Schedule(std::move(step));
  }

  // Runs `step` with the payload of `plan`.
  template <typename Step>
  void GetPayload(const PlanPtr& plan, Step step) {
    call_.environment().engine.Get(
        plan, cancellation_,
        [this, step = std::move(step)](absl::StatusOr<PayloadPtr> payload) {
          if (cancellation_->cancelled()) return End(call_.WhyCancelled());
          if (!payload.ok()) return End(payload.status());
          step(*std::move(payload));
        });
  }

  Call call_;
  const CancellationPtr cancellation_ = std::make_shared<Cancellation>();
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_CALL_REACTOR_H_
