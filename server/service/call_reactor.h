// SPDX-License-Identifier: Apache-2.0
// Reactors for all methods: the steps that they share, and response streaming.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/v1/service.grpc.pb.h"
#include "core/base/executor.h"
#include "core/base/mutex.h"
#include "core/cache/byte_budget.h"
#include "core/engine/engine.h"
#include "grpcpp/alarm.h"
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

  // Admits the call. If the client is still waiting, runs `step` on an executor thread, so that
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

// Serves `Base`, a generated service, with unparsed messages. Payloads are therefore not copied,
// and malformed requests are answered, logged and counted like other invalid ones.
template <typename Base>
class RawService : public Base {
 public:
  // `first` is the first method of the service. `server_state` outlives this object.
  RawService(ServerState* server_state, Method first)
      : server_state_(server_state), first_(static_cast<int>(first)) {}

  // Handles each call to a method with the reactor that `make` returns.
  template <template <typename, typename> typename Handler, typename MakeReactor>
  void Start(Method method, MakeReactor make) {
    this->MarkMethodRawCallback(static_cast<int>(method) - first_,
                                new Handler<grpc::ByteBuffer, grpc::ByteBuffer>(std::move(make)));
  }

  // Answers each call to a method in one step; see UnaryReactor.
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

// Writes one message while the executor makes the next.
//
// Every event except a cancellation ends with a call to ProceedAndUnlock, which starts the next
// steps. A cancellation ends the current step, or the pause before it. The call ends when no step
// is in progress and either a step has failed or none remains.
template <typename Reactor>
class OutputPump : public CallReactor<Reactor> {
 public:
  void OnCancel() final {
    caller_->Cancel();
    MutexLock lock(pause_mutex_);
    if (pause_.has_value()) pause_->Cancel();
  }
  void OnWriteDone(bool ok) final {
    call_.watchdog_entry().WriteDone();
    mutex_.Lock();
    writing_ = false;
    written_.bytes.Clear();
    if (ok) {
      call_.MessageSent(written_.size);
    } else {
      status_.Update(call_.WhyCancelled());
    }
    ProceedAndUnlock();
  }

 protected:
  struct Message {
    grpc::ByteBuffer bytes;
    // Number of tensor bytes.
    int64_t size = 0;
  };

  OutputPump(ServerState* server_state, Method method, grpc::CallbackServerContext* context)
      : CallReactor<Reactor>(server_state, method, context) {}
  ~OutputPump() override = default;

  // Starts making one message, on an executor thread, and calls Made once. The call does not end
  // before that. Called only if HasWork returns true, and not while another message is being made.
  virtual void Make() = 0;
  // Return whether there is a message to make, and whether the client may request more. Not called
  // while a message is being made.
  virtual bool HasWork() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  virtual bool AwaitsClient() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;

  // Makes the first message on the calling thread, which must be an executor thread.
  void MakeFirst() {
    {
      const MutexLock lock(mutex_);
      making_ = true;
    }
    Make();
  }

  void Made(absl::StatusOr<Message> message) {
    mutex_.Lock();
    making_ = false;
    if (message.ok()) {
      next_ = *std::move(message);
      begun_ = true;
    } else if (!caller_->cancelled()) {
      status_.Update(message.status());
    }
    ProceedAndUnlock();
  }

  // Starts the next steps, which keep this object alive. Calls gRPC and the executor without
  // holding the lock, since they may call back.
  void ProceedAndUnlock() ABSL_UNLOCK_FUNCTION(mutex_) {
    if (caller_->cancelled()) status_.Update(call_.WhyCancelled());
    const bool write = !writing_ && status_.ok() && next_.has_value();
    if (write) {
      written_ = *std::move(next_);
      next_.reset();
      writing_ = true;
    }
    const bool make = !making_ && status_.ok() && !next_.has_value() && HasWork();
    if (make) making_ = true;
    const bool resting = !writing_ && !making_;
    const bool idle = resting && status_.ok() && AwaitsClient();
    call_.watchdog_entry().SetIdle(idle);
    EnterPhase(idle);
    if (idle && call_.server_state().draining) status_ = Draining();
    const bool end = resting && !ended_ && !(idle && status_.ok());
    if (end) ended_ = true;
    const absl::Status status = status_;
    mutex_.Unlock();
    if (write) Write();
    if (make) ScheduleMake();
    if (end) this->End(status);
  }

  using CallReactor<Reactor>::call_;
  using CallReactor<Reactor>::caller_;

  Mutex mutex_;
  // Status of the call.
  absl::Status status_ ABSL_GUARDED_BY(mutex_);

 private:
  // Until the first message is made, Make enters the phases.
  void EnterPhase(bool idle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    PhaseClock& phases = call_.phases();
    if (idle) return phases.Leave();
    if (!begun_) return;
    phases.Enter(making_ && !writing_ ? Phase::kCompute : Phase::kWrite);
  }

  void Write() {
    const auto at = call_.ReserveSendTime(written_.size);
    const auto wait = at - std::chrono::steady_clock::now();
    if (wait.count() <= 0) return WriteNow();
    MutexLock lock(pause_mutex_);
    if (!pause_.has_value()) pause_.emplace();
    pause_->Set(std::chrono::system_clock::now() + (caller_->cancelled() ? wait.zero() : wait),
                [this](bool /*ok*/) {
                  // Waits until Write has returned.
                  { const MutexLock lock(pause_mutex_); }
                  WriteNow();
                });
  }

  void WriteNow() {
    call_.watchdog_entry().WriteStarted();
    this->StartWrite(&written_.bytes, grpc::WriteOptions().set_no_compression());
  }

  void ScheduleMake() {
    auto make = [this] {
      if (!begun_) call_.phases().Enter(Phase::kPlan);
      if (caller_->cancelled()) return Made(absl::CancelledError());
      Make();
    };
    if (!begun_) call_.phases().Enter(Phase::kWait);
    call_.server_state().executor.Schedule(caller_, std::move(make));
  }

  // Delays a write that exceeds the caller's rate. Created for the first such write, since few
  // calls need it. Once set, it may be cancelled at any time.
  Mutex pause_mutex_;
  std::optional<grpc::Alarm> pause_ ABSL_GUARDED_BY(pause_mutex_);

  // The message that is being written; kept until OnWriteDone.
  Message written_;
  // True once a message has been made. Does not change while one is being made.
  bool begun_ = false;

  std::optional<Message> next_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool making_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// Works on one request while reading the next one and writing a message. Flow control therefore
// slows down a client that sends requests faster than it reads responses. A pending read ends with
// the call.
class RequestPump : public OutputPump<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>> {
 public:
  void OnReadDone(bool ok) final {
    if (ok) {
      // Counts against the budget until the request has been processed.
      auto memory = call_.server_state().engine.cache().Reserve(
          static_cast<int64_t>(incoming_.bytes.Length()), *caller_);
      if (memory.ok()) {
        incoming_.memory = *std::move(memory);
      } else {
        incoming_ = {.held = memory.status()};
      }
    }
    mutex_.Lock();
    if (ok) {
      asked_ = waiting_ = true;
    } else {
      half_closed_ = true;
      if (call_.context().IsCancelled()) status_.Update(call_.WhyCancelled());
      if (!asked_) status_.Update(NoRequest());
    }
    ProceedAndUnlock();
  }

 protected:
  using OutputPump::OutputPump;

  // Called at the end of a subclass's constructor.
  void Start() {
    absl::Status status = call_.CheckCancelled();
    if (status.ok()) status = call_.Admit(0);
    if (!status.ok()) return End(status);
    StartRead(&incoming_.bytes);
    mutex_.Lock();
    ProceedAndUnlock();
  }

  // Returns whether the current request needs more messages.
  virtual bool IsUnfinished() const = 0;
  // Returns the status of a stream without a request.
  virtual absl::Status NoRequest() const = 0;

  // A received request. If there is no memory for it, `held` is the error and `bytes` is empty.
  struct Incoming {
    grpc::ByteBuffer bytes;
    ByteBudget::Reservation memory;
    absl::Status held;
  };

  // Returns the pending request and starts reading the next. Make calls this unless IsUnfinished.
  Incoming TakeRequest() {
    Incoming taken = std::exchange(incoming_, Incoming());
    mutex_.Lock();
    waiting_ = false;
    mutex_.Unlock();
    // The call cannot end in the meantime, since Make is running.
    StartRead(&incoming_.bytes);
    return taken;
  }

 private:
  bool HasWork() final ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return IsUnfinished() || waiting_; }
  bool AwaitsClient() final ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !half_closed_; }

  // The request that is being read, or that is pending until TakeRequest.
  Incoming incoming_;

  // True once a request has been received.
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  // True while incoming_ is a pending request.
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  // True once no more requests can arrive.
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace attnbias
