// SPDX-License-Identifier: Apache-2.0
// Reactors of the methods whose response is a stream of messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/mutex.h"
#include "core/cache/byte_budget.h"
#include "grpcpp/alarm.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/service/call_reactor.h"

namespace attnbias {

// Writes one message while the executor makes the next.
//
// Every event ends in ProceedAndUnlock, which starts the next steps. The call ends when no step is
// in progress and one has failed or none remain.
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
    // Bytes of tensors.
    int64_t size = 0;
  };

  OutputPump(ServerState* server_state, Method method, grpc::CallbackServerContext* context)
      : CallReactor<Reactor>(server_state, method, context) {}
  ~OutputPump() override = default;

  // Starts to make a message, on an executor thread; calls Made once. The call does not end before
  // that. Handles one message at a time; the caller checks HasWork first.
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

  // Calls gRPC and the executor without the lock, since they may call back. The steps that it
  // starts keep this object alive.
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

  // Being written; lives until OnWriteDone.
  Message written_;
  // True once a message was made; does not change while one is being made.
  bool begun_ = false;

  std::optional<Message> next_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool making_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// Works on one request while it reads the next one and writes one message, so that flow control
// slows a client that sends faster than it reads. A pending read ends with the call.
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

  // Constructors call it last.
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

  // A request as read. If there is no memory for it, `held` is the error and `bytes` is empty.
  struct Incoming {
    grpc::ByteBuffer bytes;
    ByteBudget::Reservation memory;
    absl::Status held;
  };

  // Returns the pending request and starts to read the next. Make calls it unless IsUnfinished.
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

  // Being read or pending.
  Incoming incoming_;

  // True once a request has been received.
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  // True while incoming_ is a request.
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  // True once no more requests can arrive.
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace attnbias
