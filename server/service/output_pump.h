// SPDX-License-Identifier: Apache-2.0
// What methods whose answer is a stream of messages have in common.
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

// One message is written while the executor makes the next.
//
// Whatever happens to the call, ProceedAndUnlock starts what can then be started. The call ends
// when nothing is under way, and something has failed or nothing more will come.
template <typename Reactor>
class OutputPump : public CallReactor<Reactor> {
 public:
  void OnWriteDone(bool ok) final {
    call_.stall_entry().WriteDone();
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
    // Of the answer.
    int64_t size = 0;
  };

  OutputPump(CallEnvironment* environment, Method method, grpc::CallbackServerContext* context)
      : CallReactor<Reactor>(environment, method, context) {}
  ~OutputPump() override = default;

  // Begins to make a message, on a thread of the executor; calls Made once. The call cannot end
  // meanwhile. One at a time, and only while HasWork.
  virtual void Make() = 0;
  // While Make does not run: whether there is a message to be made, and whether the client may
  // still ask for more.
  virtual bool HasWork() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  virtual bool AwaitsClient() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;

  // Begins to make the first message, on the thread of the executor that calls this.
  void MakeFirst() {
    {
      const MutexLock lock(mutex_);
      making_ = true;
    }
    Make();
  }

  // Makes `message` the next one.
  void Put(Message message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    next_ = std::move(message);
    begun_ = true;
  }

  void Made(absl::StatusOr<Message> message) {
    mutex_.Lock();
    making_ = false;
    if (message.ok()) {
      Put(*std::move(message));
    } else if (!caller_->cancelled()) {
      status_.Update(message.status());
    }
    ProceedAndUnlock();
  }

  // gRPC and the executor are called without the lock: they may call back. What is started here
  // keeps the call from ending, and so this object alive.
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
    call_.stall_entry().SetIdle(idle);
    EnterPhase(idle);
    if (idle && call_.environment().draining) status_ = Draining();
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
  // How the call is to end.
  absl::Status status_ ABSL_GUARDED_BY(mutex_);

 private:
  // Until there is a message, the steps that lead to it say what they do.
  void EnterPhase(bool idle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    PhaseClock& phases = call_.phases();
    if (idle) return phases.Leave();
    if (!begun_) return;
    phases.Enter(making_ && !writing_ ? Phase::kCompute : Phase::kWrite);
  }

  void Write() {
    const auto at = call_.TakeTurnToSend(written_.size);
    const auto wait = at - std::chrono::steady_clock::now();
    if (wait.count() <= 0) return WriteNow();
    MutexLock lock(pause_mutex_);
    pause_.Set(std::chrono::system_clock::now() + (caller_->cancelled() ? wait.zero() : wait),
               [this](bool /*ok*/) {
                 // Waits until Write has let go of this object.
                 { const MutexLock lock(pause_mutex_); }
                 WriteNow();
               });
    paused_ = true;
  }

  void OnUnwanted() final {
    MutexLock lock(pause_mutex_);
    if (paused_) pause_.Cancel();
  }

  void WriteNow() {
    call_.stall_entry().WriteStarted();
    this->StartWrite(&written_.bytes, grpc::WriteOptions().set_no_compression());
  }

  void ScheduleMake() {
    auto make = [this] {
      if (!begun_) call_.phases().Enter(Phase::kPlan);
      if (caller_->cancelled()) return Made(absl::CancelledError());
      Make();
    };
    if (!begun_) call_.phases().Enter(Phase::kWait);
    call_.environment().executor.Schedule(caller_, std::move(make));
  }

  // Of a write whose turn has not come. Once Set it may be cancelled at any time.
  Mutex pause_mutex_;
  grpc::Alarm pause_;
  bool paused_ ABSL_GUARDED_BY(pause_mutex_) = false;

  // The message under way; must live until OnWriteDone.
  Message written_;
  // Whether there has been a message; does not change while one is made.
  bool begun_ = false;

  std::optional<Message> next_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool making_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// At any time at most one request is worked on, one is being read (or waits, read) and one message
// is being written (or waits, made): a client that sends faster than it reads is held back by flow
// control. A read that is left over ends with the call.
class RequestPump : public OutputPump<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>> {
 public:
  void OnReadDone(bool ok) final {
    if (ok) HoldIncoming();
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

  // The last thing that a constructor does.
  void Start() {
    absl::Status status = call_.CheckWanted();
    if (status.ok()) status = call_.Admit(0);
    if (!status.ok()) return End(status);
    StartRead(&incoming_.bytes);
    mutex_.Lock();
    ProceedAndUnlock();
  }

  // Whether more is to be made of a request that was taken.
  virtual bool IsUnfinished() const = 0;
  // How a stream without any request ends.
  virtual absl::Status NoRequest() const = 0;

  // A request that was read, which counts against the budget. Without memory for it there are no
  // bytes, but the reason.
  struct Incoming {
    grpc::ByteBuffer bytes;
    ByteBudget::Reservation memory;
    absl::Status held;
  };

  // The request that waits, in a Make with nothing unfinished. The next is read meanwhile.
  Incoming TakeRequest() {
    Incoming taken = std::exchange(incoming_, Incoming());
    mutex_.Lock();
    waiting_ = false;
    mutex_.Unlock();
    // Make keeps the call from ending while gRPC is being told to.
    StartRead(&incoming_.bytes);
    return taken;
  }

 private:
  // What was read counts against the budget until it has been worked on.
  void HoldIncoming() {
    auto memory = call_.environment().engine.cache().Reserve(
        static_cast<int64_t>(incoming_.bytes.Length()), *caller_);
    if (memory.ok()) {
      incoming_.memory = *std::move(memory);
    } else {
      incoming_ = {.held = memory.status()};
    }
  }
  bool HasWork() final ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return IsUnfinished() || waiting_; }
  bool AwaitsClient() final ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !half_closed_; }

  // Being read, or read and waiting.
  Incoming incoming_;

  // There has been a request; incoming_ is one; there will be no more.
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace attnbias
