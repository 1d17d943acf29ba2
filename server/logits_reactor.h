// SPDX-License-Identifier: Apache-2.0
// The life of one ComputeLogits.
#ifndef ATTNBIAS_SERVER_LOGITS_REACTOR_H_
#define ATTNBIAS_SERVER_LOGITS_REACTOR_H_

#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/v1/logits.pb.h"
#include "core/base/cancellation.h"
#include "core/cache/band.h"
#include "core/cache/byte_budget.h"
#include "core/logits/positional_logits.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/call.h"

namespace attnbias {

// At any time at most one request is worked on, one is being read (or waits,
// read) and one message is being written (or waits, made): a client that sends
// faster than it reads is held back by flow control.
//
// Each of the three, when it is done, calls Proceed, which starts what can be
// started, and ends the call once nothing is left or something has failed.
class LogitsReactor final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  LogitsReactor(CallEnvironment* environment,
                grpc::CallbackServerContext* context);

  // Once, after construction. The object deletes itself when the call is over.
  void Start();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override { cancellation_->Cancel(); }
  void OnDone() override { delete this; }

 private:
  struct Message {
    grpc::ByteBuffer bytes;
    // Of the answer.
    int64_t size = 0;
  };

  // Rows under way.
  struct Work {
    BudgetedBuffer memory;
    RowBlock block;
    // Of its answer: how many there are, and how many have been made.
    int64_t lines = 0;
    int64_t made = 0;
  };

  ~LogitsReactor() override = default;

  void Proceed(std::unique_lock<std::mutex> lock);
  absl::Status HoldIncoming();
  void Read();
  void Write();
  void ScheduleStep();
  // Makes the next message.
  void Step();
  absl::StatusOr<Message> MakeMessage();
  absl::StatusOr<Message> Prepare(const v1::ComputeLogitsRequest& request);
  absl::Status Accept(const v1::ComputeLogitsRequest& request);
  absl::StatusOr<Message> Compute();
  void End(const absl::Status& status) { Finish(call_.End(status)); }

  Call call_;
  const CancellationPtr cancellation_ = std::make_shared<Cancellation>();

  // Used by one Step at a time.
  std::optional<grpc::ByteBuffer> request_;
  ByteBudget::Reservation request_memory_;
  std::unique_ptr<const PositionalLogits> logits_;
  Work work_;

  // Being read, or read and waiting.
  grpc::ByteBuffer incoming_;
  ByteBudget::Reservation incoming_memory_;
  // The message under way; must live until OnWriteDone.
  Message written_;

  std::mutex mutex_;
  // All below are guarded by mutex_.
  bool reading_ = false;
  // While gRPC is being told to read the call must not end.
  bool starting_read_ = false;
  bool waiting_ = false;      // incoming_ is a request
  bool half_closed_ = false;  // there will be no more requests
  bool working_ = false;
  bool unfinished_ = false;  // work_ has lines to be made
  std::optional<Message> next_;
  bool writing_ = false;
  absl::Status status_;  // how the stream is to end
  bool ended_ = false;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_LOGITS_REACTOR_H_
