// SPDX-License-Identifier: Apache-2.0
// The steps that the reactors of all methods share.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/v1/service.grpc.pb.h"
#include "core/base/executor.h"
#include "core/engine/engine.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/service/call.h"
#include "server/service/messages.h"

namespace attnbias {

// Adds a Call to one of gRPC's reactors. Deletes itself when the call ends, and must not be used
// after End, which is called once.
template <typename Reactor>
class CallReactor : public Reactor {
 public:
  CallReactor(ServerState* server_state, Method method, grpc::CallbackServerContext* context)
      : call_(server_state, method, context), caller_(call_.caller()) {}

  void OnCancel() override { caller_->Cancel(); }
  void OnDone() final { delete this; }

 protected:
  ~CallReactor() override = default;

  void End(const absl::Status& status) { this->Finish(call_.End(status)); }

  absl::Status Admit(const grpc::ByteBuffer& request) {
    return call_.Admit(static_cast<int64_t>(request.Length()));
  }

  // Admits the call and runs `step` on an executor thread, if the client still waits, so that
  // computations do not block gRPC's threads.
  template <typename Step>
  void Begin(const grpc::ByteBuffer& request, Step step) {
    if (absl::Status status = Admit(request); !status.ok()) return End(status);
    call_.phases().Enter(Phase::kWait);
    call_.server_state().executor.Schedule(caller_, [this, step = std::move(step)]() mutable {
      call_.phases().Enter(Phase::kPlan);
      if (absl::Status status = call_.CheckCancelled(); !status.ok()) return End(status);
      step();
    });
  }

  // Runs `step` with the header of `plan`, on an executor thread.
  template <typename Step>
  void GetHeader(const PlanPtr& plan, Step step) {
    const Encoding& encoding = plan->encoding();
    const bool takes_long = encoding.derive != nullptr && encoding.takes_long_to_prepare();
    PhaseClock& phases = call_.phases();
    if (takes_long) phases.Enter(Phase::kWait);
    RunBlocking(
        call_.server_state().executor, caller_, takes_long,
        [plan, takes_long, &phases] {
          phases.Enter(Phase::kPlan);
          v1::TensorHeader header = HeaderOf(*plan);
          if (takes_long) phases.Enter(Phase::kWait);
          return header;
        },
        [this, step, &phases](absl::StatusOr<v1::TensorHeader> header) {
          if (!header.ok()) return End(call_.WhyCancelled());
          phases.Enter(Phase::kPlan);
          step(*std::move(header));
        });
  }

  // Runs `step` with the payload of `plan`, on an executor thread.
  template <typename Step>
  void GetPayload(const PlanPtr& plan, Step step) {
    TryGetPayload(plan, [this, step](absl::StatusOr<PayloadPtr> payload) {
      if (!payload.ok()) return End(payload.status());
      step(*std::move(payload));
    });
  }

  // Calls `done` with the payload or an error, for calls that continue after an error.
  template <typename Done>
  void TryGetPayload(const PlanPtr& plan, Done done) {
    call_.phases().Enter(Phase::kCompute);
    call_.server_state().engine.Get(plan, caller_,
                                    [this, done](absl::StatusOr<PayloadPtr> payload) {
                                      if (caller_->cancelled()) return done(call_.WhyCancelled());
                                      done(std::move(payload));
                                    });
  }

  Call call_;
  const CallerPtr caller_;
};

// A call that is answered in one step: `make(call, request, answer)` fills in the answer or returns
// an error.
template <typename Request, typename Answer>
class UnaryReactor final : public CallReactor<grpc::ServerUnaryReactor> {
 public:
  template <typename Make>
  UnaryReactor(ServerState* server_state, Method method, Make make,
               grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
               grpc::ByteBuffer* response)
      : CallReactor(server_state, method, context) {
    Begin(*bytes, [this, bytes, response, make] {
      Answer answer;
      const absl::StatusOr<Request> request = call_.Parse<Request>(*bytes);
      absl::Status status = request.status();
      if (status.ok()) status = make(call_, *request, &answer);
      if (status.ok()) {
        *response = Serialized(answer);
        call_.AnswerSent();
      }
      End(status);
    });
  }
};

// Serves `Base`, a generated service, with raw messages: payloads are not copied, and bytes that
// are not a message are answered, logged and counted like other invalid requests.
template <typename Base>
class RawService : public Base {
 public:
  // `first` is the first method of the service. `server_state` outlives this object.
  RawService(ServerState* server_state, Method first)
      : server_state_(server_state), first_(static_cast<int>(first)) {}

  // Starts each call of a method with the reactor that `make` returns.
  template <template <typename, typename> typename Handler, typename MakeReactor>
  void Start(Method method, MakeReactor make) {
    this->MarkMethodRawCallback(static_cast<int>(method) - first_,
                                new Handler<grpc::ByteBuffer, grpc::ByteBuffer>(std::move(make)));
  }

  // Answers a method in one step: see UnaryReactor.
  template <typename Request, typename Response, typename Make>
  void Answer(Method method, Make make) {
    Start<grpc::internal::CallbackUnaryHandler>(method, [=, this](auto*... call) {
      return new UnaryReactor<Request, Response>(server_state_, method, make, call...);
    });
  }

 private:
  ServerState* const server_state_;
  const int first_;
};

}  // namespace attnbias
