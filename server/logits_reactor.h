// SPDX-License-Identifier: Apache-2.0
// The life of one ComputeLogits.
#ifndef ATTNBIAS_SERVER_LOGITS_REACTOR_H_
#define ATTNBIAS_SERVER_LOGITS_REACTOR_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/v1/logits.pb.h"
#include "core/cache/byte_budget.h"
#include "core/logits/positional_logits.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/request_pump.h"

namespace attnbias {

class LogitsReactor final : public RequestPump {
 public:
  LogitsReactor(CallEnvironment* environment,
                grpc::CallbackServerContext* context);

  ~LogitsReactor() override;

 private:
  // Rows under way.
  struct Work {
    BudgetedBuffer memory;
    RowBlock block;
    // Of its answer: how many there are, and how many have been made.
    int64_t lines = 0;
    int64_t made = 0;
  };

  bool IsUnfinished() const override { return work_.made < work_.lines; }
  absl::Status NoRequest() const override;
  void Make() override;
  absl::StatusOr<v1::ComputeLogitsRequest> ParseNext(
      const grpc::ByteBuffer& bytes, ByteBudget::Reservation& memory);
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
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_LOGITS_REACTOR_H_
