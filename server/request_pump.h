// SPDX-License-Identifier: Apache-2.0
// What the methods with streams both ways have in common: requests, of which
// one is read ahead.
#ifndef ATTNBIAS_SERVER_REQUEST_PUMP_H_
#define ATTNBIAS_SERVER_REQUEST_PUMP_H_

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "core/cache/byte_budget.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/output_pump.h"

namespace attnbias {

// At any time at most one request is worked on, one is being read (or waits,
// read) and one message is being written (or waits, made): a client that sends
// faster than it reads is held back by flow control. A read that is left over
// ends with the call.
class RequestPump
    : public OutputPump<
          grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>> {
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

  // A request that was read, which counts against the budget. Without memory
  // for it there are no bytes, but the reason.
  struct Incoming {
    grpc::ByteBuffer bytes;
    ByteBudget::Reservation memory;
    absl::Status held;
  };

  // The request that waits, in a Make with nothing unfinished. The next is read
  // meanwhile.
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
    auto memory = call_.environment().engine.Reserve(
        static_cast<int64_t>(incoming_.bytes.Length()), *caller_);
    if (memory.ok()) {
      incoming_.memory = *std::move(memory);
    } else {
      incoming_ = {.held = memory.status()};
    }
  }
  bool HasWork() final ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return IsUnfinished() || waiting_;
  }
  bool AwaitsClient() final ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !half_closed_;
  }

  // Being read, or read and waiting.
  Incoming incoming_;

  // There has been a request; incoming_ is one; there will be no more.
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_REQUEST_PUMP_H_
