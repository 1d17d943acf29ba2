// SPDX-License-Identifier: Apache-2.0
// The life of one ComputeLogits.
#ifndef ATTNBIAS_SERVER_LOGITS_REACTOR_H_
#define ATTNBIAS_SERVER_LOGITS_REACTOR_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/v1/logits.pb.h"
#include "core/cache/band.h"
#include "core/cache/byte_budget.h"
#include "core/logits/positional_logits.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/output_pump.h"

namespace attnbias {

// At any time at most one request is worked on, one is being read (or waits,
// read) and one message is being written (or waits, made): a client that sends
// faster than it reads is held back by flow control. A read that is left over
// ends with the call.
class LogitsReactor final
    : public OutputPump<
          grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>> {
 public:
  LogitsReactor(CallEnvironment* environment,
                grpc::CallbackServerContext* context);

  ~LogitsReactor() override;

  void OnReadDone(bool ok) override;

 private:
  // Rows under way.
  struct Work {
    BudgetedBuffer memory;
    RowBlock block;
    // Of its answer: how many there are, and how many have been made.
    int64_t lines = 0;
    int64_t made = 0;
  };

  bool IsUnfinished() const { return work_.made < work_.lines; }
  absl::Status HoldIncoming();
  void Make() override;
  bool HasWork() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return IsUnfinished() || waiting_;
  }
  bool AwaitsClient() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !half_closed_;
  }
  absl::StatusOr<v1::ComputeLogitsRequest> TakeRequest(
      ByteBudget::Reservation& memory);
  absl::StatusOr<LogitsPlanPtr> MakePlan(
      const v1::ComputeLogitsRequest& request) const;
  absl::Status Accept(const v1::ComputeLogitsRequest& request);
  // Makes the vectors, then calls `done`.
  template <typename Done>
  void Prepare(Done done);
  void Park();
  void Compute();
  void Send(Range lines, const std::shared_ptr<const BudgetedBuffer>& answer);

  // Used by one Make at a time.
  LogitsPlanPtr plan_;
  PositionalLogitsPtr logits_;
  // Between requests the engine may need the memory for others; the vectors are
  // made again then.
  std::weak_ptr<const PositionalLogits> parked_;
  Work work_;

  // Being read, or read and waiting.
  grpc::ByteBuffer incoming_;
  ByteBudget::Reservation incoming_memory_;

  // There has been a request; incoming_ is one; there will be no more.
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_LOGITS_REACTOR_H_
