// SPDX-License-Identifier: Apache-2.0
#include "server/call.h"

#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "server/codec/spec_codec.h"
#include "server/grpc_status.h"
#include "server/logging.h"

namespace attnbias {

Call::Call(CallEnvironment* environment, Method method,
           grpc::CallbackServerContext* context)
    : environment_(*environment),
      method_(method),
      context_(*context),
      tables_(environment_.tables.Get()),
      start_(std::chrono::steady_clock::now()) {
  ++environment_.active_calls;
  environment_.metrics.CallStarted(method_);
}

Call::~Call() {
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - start_;
  environment_.metrics.CallHandled(method_, code_, seconds.count());
  --environment_.active_calls;
  if (!LogsAccess()) return;
  LogAccess({.method = NameOf(method_),
             .peer = context_.peer(),
             .code = NameOf(code_),
             .milliseconds = seconds.count() * 1000,
             .bytes = bytes_,
             .encoding = plan_ ? plan_->encoding().name() : "",
             .fingerprint = plan_ ? plan_->fingerprint() : "",
             .error = error_});
}

absl::Status Call::CheckWanted() const {
  if (environment_.draining) return Draining();
  // gRPC cancels a call when its deadline passes, but only soon after.
  if (context_.IsCancelled() ||
      context_.deadline() <= std::chrono::system_clock::now()) {
    return WhyCancelled();
  }
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

grpc::Status Call::End(const absl::Status& status) {
  code_ = static_cast<grpc::StatusCode>(status.code());
  error_ = std::string(status.message());
  if (absl::IsResourceExhausted(status)) {
    environment_.metrics.Rejected(Rejection::kOverload);
  } else if (absl::IsUnavailable(status)) {
    environment_.metrics.Rejected(Rejection::kDraining);
  } else if (absl::IsAborted(status)) {
    environment_.metrics.Rejected(Rejection::kStalledReader);
  }
  if (const std::optional<absl::Duration> delay = RetryDelay(status)) {
    // What gRPC's own retry policy obeys.
    context_.AddTrailingMetadata(
        "grpc-retry-pushback-ms",
        std::to_string(absl::ToInt64Milliseconds(*delay)));
  }
  return ToGrpcStatus(status);
}

absl::Status QueueFull() {
  return absl::ResourceExhaustedError(
      "the queue of computations is full; try again later");
}

absl::Status Draining() {
  return absl::UnavailableError("the server is draining; try another");
}

absl::Status Call::WhyCancelled() const {
  if (context_.deadline() <= std::chrono::system_clock::now()) {
    return absl::DeadlineExceededError("the deadline has passed");
  }
  return absl::CancelledError("the client has cancelled");
}

}  // namespace attnbias
