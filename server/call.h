// SPDX-License-Identifier: Apache-2.0
// What the calls of every method have in common: what they work with, the
// refusals that come before any work, their place in metrics and log.
#ifndef ATTNBIAS_SERVER_CALL_H_
#define ATTNBIAS_SERVER_CALL_H_

#include <atomic>
#include <chrono>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"
#include "core/base/executor.h"
#include "core/base/status_macros.h"
#include "core/cache/byte_budget.h"
#include "core/engine/engine.h"
#include "core/mount/registry.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/codec/known.h"
#include "server/metrics.h"
#include "server/plan_memo.h"
#include "server/stall_watch.h"

namespace attnbias {

// Outlives every call.
struct CallEnvironment {
  Engine& engine;
  Executor& executor;
  Metrics& metrics;
  StallWatch& stall_watch;
  PlanMemo plan_memo;
  TableRegistry tables;
  std::atomic<bool> draining{false};
  std::atomic<int> active_calls{0};
};

// One call, from request to end. `context` outlives it.
class Call {
 public:
  Call(CallEnvironment* environment, Method method,
       grpc::CallbackServerContext* context);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  // Counts and logs the call.
  ~Call();

  CallEnvironment& environment() const { return environment_; }
  grpc::CallbackServerContext& context() const { return context_; }

  // The tables that were mounted when the call began.
  const TableSetPtr& tables() const { return tables_; }

  // UNAVAILABLE while draining, DEADLINE_EXCEEDED or CANCELLED once nobody
  // waits for the answer.
  absl::Status CheckWanted() const;

  // The plan of a request, whose messages begin with "spec.".
  absl::StatusOr<PlanPtr> MakePlan(const v1::TensorSpec& spec);

  // Counts against the memory budget, until the call ends, what becomes of a
  // large request. RESOURCE_EXHAUSTED when there is no room.
  absl::Status HoldMemoryFor(const grpc::ByteBuffer& request);

  // For whoever writes: closes the call when its client stops reading or
  // sending.
  StallWatch::Entry& stall_entry() { return stall_entry_; }

  // What the log is to say that the call is about.
  void SetPlan(PlanPtr plan) { plan_ = std::move(plan); }

  // Counts a message with so many bytes of an answer's numbers.
  void MessageSent(int64_t bytes = 0);

  // What to finish the call with; adds the trailing metadata that belongs to
  // it. Once.
  grpc::Status End(const absl::Status& status);
  // The end of a call whose peer is gone or was given up: says why.
  absl::Status WhyCancelled() const;

 private:
  CallEnvironment& environment_;
  const Method method_;
  grpc::CallbackServerContext& context_;
  const TableSetPtr tables_;
  const std::chrono::steady_clock::time_point start_;
  StallWatch::Entry stall_entry_;
  ByteBudget::Reservation request_memory_;
  int64_t bytes_ = 0;
  PlanPtr plan_;
  absl::Status end_;
};

// INVALID_ARGUMENT where the message of a TensorHeader is larger than stock
// clients accept, which only long lists of large positions make it.
absl::Status CheckHeaderSize(int64_t message_bytes);

// What a call is refused with when the executor takes no more.
absl::Status QueueFull();

// What it is refused with while the server drains.
absl::Status Draining();

// The message in `bytes`. INVALID_ARGUMENT when it is none, UNIMPLEMENTED when
// it has fields that this server does not know.
template <typename Message>
absl::StatusOr<Message> ParseRequest(const grpc::ByteBuffer& bytes) {
  Message message;
  grpc::ByteBuffer copy(bytes);  // of references; parsing empties it
  if (!grpc::SerializationTraits<Message>::Deserialize(&copy, &message).ok()) {
    return absl::InvalidArgumentError(
        "request: not a serialised " +
        std::string(Message::descriptor()->name()));
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckKnown(message));
  return message;
}

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_CALL_H_
