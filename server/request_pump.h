// SPDX-License-Identifier: Apache-2.0
// What the methods with streams both ways have in common: requests, of which
// one is read ahead.
#ifndef ATTNBIAS_SERVER_REQUEST_PUMP_H_
#define ATTNBIAS_SERVER_REQUEST_PUMP_H_

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
  void OnReadDone(bool ok) final;

 protected:
  using OutputPump::OutputPump;

  // The last thing that a constructor does.
  void Start();

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
  Incoming TakeRequest();

 private:
  void HoldIncoming();
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
