// SPDX-License-Identifier: Apache-2.0
// Admits, counts and logs calls to all methods.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"
#include "core/base/executor.h"
#include "core/cache/byte_budget.h"
#include "core/engine/engine.h"
#include "core/mount/registry.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/access/access.h"
#include "server/observe/metrics.h"
#include "server/observe/phases.h"
#include "server/schedule/stream_watchdog.h"
#include "server/service/messages.h"
#include "server/service/plan_memo.h"

namespace attnbias {

// The parts of the server that calls use. Outlives every call.
struct ServerState {
  Engine& engine;
  Executor& executor;
  Metrics& metrics;
  StreamWatchdog& watchdog;
  const Access& access;
  PlanMemo plan_memo;
  TableRegistry tables;
  std::atomic<bool> draining{false};
};

// One call, from request to end. `context` outlives it.
class Call {
 public:
  Call(ServerState* server_state, Method method, grpc::CallbackServerContext* context);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  // Counts and logs the call.
  ~Call();

  ServerState& server_state() const { return server_state_; }
  grpc::CallbackServerContext& context() const { return context_; }

  const CallerPtr& caller() const { return caller_; }

  // The tables that were mounted when the call began and that the call may use.
  const TableSetPtr& tables() const { return tables_; }

  // Returns UNAVAILABLE while draining, and DEADLINE_EXCEEDED or CANCELLED if the client is no
  // longer waiting for the response.
  absl::Status CheckCancelled() const;

  // Plans `spec`. Field paths in errors begin with `path`, the request field that contains the spec
  // (empty if there is none).
  absl::StatusOr<PlanPtr> MakePlan(v1::TensorSpec spec, std::string_view path = "spec");

  // Checks that the call is allowed, before it has any effect. Reserves memory, until the call
  // ends, for the call itself and for the bytes received.
  //
  // UNAUTHENTICATED, PERMISSION_DENIED  as in Access::Identify, or if the method is not granted
  // RESOURCE_EXHAUSTED                  no memory, or the caller's limit is reached
  absl::Status Admit(int64_t received_bytes);

  // Parses a request. Reserves memory for the message and for its plan.
  template <typename Message>
  absl::StatusOr<Message> Parse(const grpc::ByteBuffer& bytes) {
    return ParseRequest<Message>(bytes, [this](int64_t size) { return HoldDecoded(size); });
  }

  // Releases the memory that Parse reserved. For use before a stream's next request.
  void ForgetRequest() { decoded_memory_ = ByteBudget::Reservation(); }

  // Returns the call's entry in the watchdog, which closes the call if its client stops reading or
  // sending. The entry must be notified when a write or an idle period starts or ends.
  StreamWatchdog::Entry& watchdog_entry() { return watchdog_entry_; }

  PhaseClock& phases() { return phases_; }

  // Sets the plan to log.
  void SetPlan(PlanPtr plan) { plan_ = std::move(plan); }

  // Reserves time at the caller's rate for the next message, which has this many tensor bytes.
  // Returns the time at which the message may be sent.
  std::chrono::steady_clock::time_point ReserveSendTime(int64_t bytes);
  // If the message may be sent now, reserves its time and returns true.
  bool TryReserveSendTime(int64_t bytes);

  // Counts the only response to a call. From then on, the watchdog closes the call if its client
  // does not read the response.
  void AnswerSent(int64_t bytes = 0);
  // Counts a message that was sent.
  void MessageSent(int64_t bytes = 0);

  // Returns the status with which to finish the call. Counts the status and adds its trailing
  // metadata. Must be called once.
  grpc::Status End(const absl::Status& status);
  // Returns the reason for the cancellation: this server, the deadline or the client.
  absl::Status WhyCancelled() const;

 private:
  absl::Status CheckAllowed();
  absl::Status HoldDecoded(int64_t bytes);
  void EndWith(const absl::Status& status);
  // Returns the request id that the client sent or, if it sent none, one that this server makes.
  const std::string& request_id();

  ServerState& server_state_;
  const Method method_;
  grpc::CallbackServerContext& context_;
  // Copied when the call begins, since gRPC drops it once the call is cancelled.
  const std::string peer_;
  // The caller, or why it was rejected.
  const absl::StatusOr<Identity> identity_;
  const CallerPtr caller_;
  const TableSetPtr tables_;
  const std::chrono::steady_clock::time_point start_;
  const std::chrono::steady_clock::time_point deadline_;
  PhaseClock phases_;
  StreamWatchdog::Entry watchdog_entry_;
  // True if the account counts this call.
  bool counted_ = false;
  ByteBudget::Reservation received_memory_;
  ByteBudget::Reservation decoded_memory_;
  int64_t bytes_ = 0;
  PlanPtr plan_;
  std::string request_id_;
  absl::Status end_;
};

// Returns a call's id, for the log and the client: `given` if it consists of 1 to 128 letters,
// digits and "-_.:/+=", or else an id that is unique across processes.
std::string RequestId(std::string_view given);

// Returns the UNAVAILABLE error that a draining server sends.
absl::Status Draining();

}  // namespace attnbias
