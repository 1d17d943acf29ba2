// SPDX-License-Identifier: Apache-2.0
#include "server/call.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "server/codec/spec_codec.h"
#include "server/grpc_status.h"
#include "server/limits.h"
#include "server/logging.h"
#include "server/status_codes.h"

namespace attnbias {
namespace {

// What a call takes, here and in gRPC, beside its request and its answer.
constexpr int64_t kCallBytes = int64_t{16} << 10;

// A request's tables and lists exist as a message, as a spec, as the spec that
// a header repeats, and in that header.
constexpr int64_t kCopies = 4;

// On a clock that nobody sets. The system's, in nanoseconds, ends in 2262, and
// Go's longest timeout is later.
std::chrono::steady_clock::time_point SteadyDeadline(gpr_timespec deadline) {
  constexpr std::chrono::seconds kFar = std::chrono::hours(24 * 365);
  const gpr_timespec left =
      gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  const auto seconds = std::min(std::chrono::seconds(left.tv_sec), kFar);
  return std::chrono::steady_clock::now() + std::max(seconds, -kFar) +
         std::chrono::nanoseconds(left.tv_nsec);
}

// Tells connections apart. gRPC gives all clients of a socket file one name,
// but keeps the properties of each connection in a place of their own.
std::string ConnectionOf(const grpc::CallbackServerContext& context) {
  std::string peer = context.peer();
  if (!peer.starts_with("unix:")) return peer;
  const std::shared_ptr<const grpc::AuthContext> properties =
      context.auth_context();
  grpc::AuthPropertyIterator first = properties->begin();
  if (first == properties->end()) return peer;
  const char* const value = (*first).second.data();
  return absl::StrCat(peer, absl::Hex(reinterpret_cast<uintptr_t>(value)));
}

}  // namespace

Call::Call(CallEnvironment* environment, Method method,
           grpc::CallbackServerContext* context)
    : environment_(*environment),
      method_(method),
      context_(*context),
      caller_(std::make_shared<Caller>(ConnectionOf(*context))),
      tables_(environment_.tables.Get()),
      start_(std::chrono::steady_clock::now()),
      deadline_(SteadyDeadline(context->raw_deadline())),
      stall_entry_(&environment_.stall_watch, context->c_call(),
                   caller_.get()) {
  ++environment_.active_calls;
  environment_.metrics.CallStarted(method_);
}

Call::~Call() {
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - start_;
  environment_.metrics.CallHandled(method_, end_.code(), seconds.count());
  --environment_.active_calls;
  if (!LogsAccess(end_.code())) return;
  LogAccess({.method = NameOf(method_),
             .peer = context_.peer(),
             .code = end_.code(),
             .milliseconds = seconds.count() * 1000,
             .bytes = bytes_,
             .encoding = plan_ ? plan_->encoding().name : "",
             .fingerprint = plan_ ? plan_->fingerprint() : "",
             .error = std::string(end_.message())});
}

absl::Status Call::CheckWanted() const {
  if (environment_.draining) return Draining();
  // gRPC cancels a call whose deadline has passed, but a little later.
  if (context_.IsCancelled() || deadline_ <= std::chrono::steady_clock::now()) {
    return WhyCancelled();
  }
  return absl::OkStatus();
}

absl::Status Call::HoldMemory(int64_t received_bytes) {
  ATTNBIAS_ASSIGN_OR_RETURN(
      received_memory_,
      environment_.engine.Reserve(kCallBytes + received_bytes, *caller_));
  return absl::OkStatus();
}

absl::Status Call::HoldDecoded(int64_t bytes) {
  ATTNBIAS_ASSIGN_OR_RETURN(
      decoded_memory_, environment_.engine.Reserve(kCopies * bytes, *caller_));
  return absl::OkStatus();
}

absl::StatusOr<PlanPtr> Call::MakePlan(const v1::TensorSpec& spec) {
  absl::StatusOr<TensorSpec> decoded = DecodeSpec(spec, *tables_);
  if (!decoded.ok()) return Under("spec", decoded.status());
  absl::StatusOr<PlanPtr> plan =
      environment_.engine.MakePlan(*std::move(decoded));
  if (!plan.ok()) return Under("spec", plan.status());
  plan_ = *plan;
  return plan;
}

void Call::AnswerSent(int64_t bytes) {
  MessageSent(bytes);
  stall_entry_.Register();
  stall_entry_.WriteStarted();
}

void Call::MessageSent(int64_t bytes) {
  bytes_ += bytes;
  environment_.metrics.MessageSent(method_, bytes);
}

grpc::Status Call::End(const absl::Status& status) {
  end_ = WithShortMessage(status);
  if (const auto rejection = RowOf(status).rejection) {
    environment_.metrics.Rejected(*rejection);
  }
  if (const std::optional<absl::Duration> delay = RetryDelay(status)) {
    // What gRPC's own retry policy obeys.
    context_.AddTrailingMetadata(
        "grpc-retry-pushback-ms",
        std::to_string(absl::ToInt64Milliseconds(*delay)));
  }
  return ToGrpcStatus(end_);
}

absl::Status CheckHeaderSize(int64_t message_bytes) {
  if (message_bytes <= kMaxUnaryResponseBytes) return absl::OkStatus();
  return Invalid("spec: got lists of positions that make a header of ",
                 message_bytes, " bytes, want at most ", kMaxUnaryResponseBytes,
                 "; ask for fewer at once");
}

absl::Status QueueFull() {
  return absl::ResourceExhaustedError(
      "the queue of computations is full; try again later");
}

absl::Status Draining() {
  return absl::UnavailableError("the server is draining; try another");
}

absl::Status Call::WhyCancelled() const {
  absl::Status closed = stall_entry_.WhyClosed();
  if (!closed.ok()) return closed;
  if (deadline_ <= std::chrono::steady_clock::now()) {
    return absl::DeadlineExceededError("the deadline has passed");
  }
  return absl::CancelledError("the client has cancelled");
}

}  // namespace attnbias
