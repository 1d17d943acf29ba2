// SPDX-License-Identifier: Apache-2.0
#include "server/service/call.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/errors.h"
#include "core/mount/registry.h"
#include "server/observe/logging.h"
#include "server/observe/tracing.h"
#include "server/service/grpc_status.h"
#include "server/service/messages.h"

namespace attnbias {
namespace {

// Memory that a call takes, here and in gRPC, excluding its request and response.
constexpr int64_t kCallBytes = int64_t{16} << 10;

// Number of copies of a request's lists: in the received message, the plan's positions, the plan's
// resolved spec and the header.
constexpr int64_t kCopies = 4;

// Maximum backlog of a caller whose bytes per second are limited. GetTensor and ModelInfer are
// rejected if the backlog is longer.
constexpr std::chrono::seconds kLongestBacklog(1);

// Converts a deadline to the steady clock, capped at one year from now. A Go client's timeout can
// be up to 292 years; expressed in nanoseconds since 1970, such a deadline would overflow.
std::chrono::steady_clock::time_point SteadyDeadline(gpr_timespec deadline) {
  constexpr std::chrono::seconds kFar = std::chrono::hours(24 * 365);
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  const auto seconds = std::min(std::chrono::seconds(left.tv_sec), kFar);
  return std::chrono::steady_clock::now() + std::max(seconds, -kFar) +
         std::chrono::nanoseconds(left.tv_nsec);
}

// Returns the last address in `x-forwarded-for`, which the proxy that connects to this server
// added. Ignores values longer than an address.
std::string_view ForwardedFor(const grpc::CallbackServerContext& context) {
  constexpr size_t kLongestAddress = 45;
  const std::string_view list = OnlyValue(context.client_metadata(), "x-forwarded-for");
  const std::string_view last = list.substr(list.find_last_of(", ") + 1);
  return last.size() <= kLongestAddress ? last : std::string_view();
}

// Identifies a connection over a socket file by the memory address of its properties, since gRPC
// gives all such connections the same name.
std::string SocketOf(const grpc::CallbackServerContext& context, const std::string& peer) {
  const std::shared_ptr<const grpc::AuthContext> properties = context.auth_context();
  grpc::AuthPropertyIterator first = properties->begin();
  if (first == properties->end()) return peer;
  const char* const value = (*first).second.data();
  return absl::StrCat(peer, absl::Hex(reinterpret_cast<uintptr_t>(value)));
}

// Returns the key of an anonymous client: its address (over a socket file, its connection) and the
// address that a proxy reports. A client that reports a false address never shares another client's
// key.
std::string ClientOf(const grpc::CallbackServerContext& context, const std::string& peer) {
  return absl::StrCat(
      peer.starts_with("unix:") ? SocketOf(context, peer) : peer.substr(0, peer.rfind(':')),
      " for ", std::string(ForwardedFor(context)));
}

// A named caller is the same client at all of its addresses.
CallerPtr MakeCaller(const grpc::CallbackServerContext& context, const std::string& peer,
                     const absl::StatusOr<Identity>& identity, int64_t memory_budget_bytes) {
  if (!identity.ok() || !*identity) {
    return std::make_shared<Caller>(ClientOf(context, peer));
  }
  return std::make_shared<Caller>(
      QuotaOwner{.name = absl::StrCat("caller ", identity->account->name),
                 .max_bytes = static_cast<int64_t>(identity->rights->memory_share *
                                                   static_cast<double>(memory_budget_bytes))});
}

TableSetPtr TablesOf(const absl::StatusOr<Identity>& identity, TableSetPtr mounted) {
  if (!identity.ok() || !*identity) return mounted;
  return mounted->Under(identity->rights->table_prefixes);
}

constexpr char kRequestIdKey[] = "x-request-id";

bool IsRequestId(std::string_view id) {
  constexpr std::string_view kMarks = "-_.:/+=";
  return !id.empty() && id.size() <= 128 && absl::c_all_of(id, [kMarks](char c) {
    return absl::ascii_isalnum(c) || kMarks.find(c) != std::string_view::npos;
  });
}

std::string RandomPrefix() {
  std::random_device random;
  return absl::StrCat(absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8),
                      "-");
}

}  // namespace

Call::Call(ServerState* server_state, Method method, grpc::CallbackServerContext* context)
    : server_state_(*server_state),
      method_(method),
      context_(*context),
      peer_(context->peer()),
      identity_(server_state_.access.Identify(*context)),
      caller_(MakeCaller(*context, peer_, identity_,
                         server_state_.engine.options().memory_budget_bytes)),
      tables_(TablesOf(identity_, server_state_.tables.Get())),
      start_(std::chrono::steady_clock::now()),
      deadline_(SteadyDeadline(context->raw_deadline())),
      phases_(start_),
      watchdog_entry_(&server_state_.watchdog, context->c_call(), caller_.get()) {
  server_state_.metrics.CallStarted(method_);
}

Call::~Call() {
  // After End, a unary call may still be cancelled before its client reads the response.
  if (end_.ok() && caller_->cancelled()) EndWith(WhyCancelled());
  const auto now = std::chrono::steady_clock::now();
  const PhaseTimes phases = phases_.End(now);
  server_state_.metrics.CallHandled(method_, end_.code(), now - start_, phases);
  if (counted_) --identity_->account->calls;
  const bool logs = LogsAccess(end_.code());
  if (!logs && !IsTracing()) return;
  AccessLine line = {
      .method = NameOf(method_),
      .peer = peer_,
      .identity = identity_.ok() && *identity_ ? std::string_view(identity_->account->name) : "",
      .code = end_.code(),
      .start = start_,
      .duration = now - start_,
      .phases = phases,
      .changes = phases_.changes(),
      .bytes = bytes_,
      .encoding = plan_ ? plan_->encoding().name : "",
      .fingerprint = plan_ ? std::string_view(plan_->fingerprint()) : "",
      .request_id = request_id(),
      .error = std::string(end_.message())};
  const ClientMetadata& metadata = context_.client_metadata();
  line.trace = TraceCall(method_, line,
                         {.traceparent = OnlyValue(metadata, "traceparent"),
                          .tracestate = OnlyValue(metadata, "tracestate")});
  if (logs) LogAccess(line);
}

absl::Status Call::CheckCancelled() const {
  if (server_state_.draining) return Draining();
  // gRPC cancels a call slightly after its deadline.
  if (context_.IsCancelled() || deadline_ <= std::chrono::steady_clock::now()) {
    return WhyCancelled();
  }
  return absl::OkStatus();
}

absl::Status Call::CheckAllowed() {
  ATTNBIAS_RETURN_IF_ERROR(identity_.status());
  if (!*identity_) return absl::OkStatus();
  Account& account = *identity_->account;
  const Rights& rights = *identity_->rights;
  if (!rights.MayCall(method_)) {
    return WithReason(absl::PermissionDeniedError(absl::StrCat(
                          Shortened(account.name), " may not call ", std::string(NameOf(method_)))),
                      "METHOD_NOT_ALLOWED");
  }
  counted_ = true;
  if (++account.calls > rights.concurrent_calls) {
    return CallerLimit(absl::StrCat(Shortened(account.name), " has ", rights.concurrent_calls,
                                    " calls in flight, its limit; try again later"));
  }
  // A stream that exceeds the rate is delayed. A unary call is answered immediately or rejected.
  if ((method_ == Method::kGetTensor || method_ == Method::kModelInfer) &&
      account.pacer.Backlog() > kLongestBacklog) {
    return CallerLimit(absl::StrCat(Shortened(account.name), " may receive ",
                                    rights.bytes_per_second,
                                    " bytes per second, and more are in flight; try again later"));
  }
  return absl::OkStatus();
}

std::chrono::steady_clock::time_point Call::ReserveSendTime(int64_t bytes) {
  if (!*identity_) return {};
  return identity_->account->pacer.Take(bytes, identity_->rights->bytes_per_second);
}

bool Call::TryReserveSendTime(int64_t bytes) {
  return !*identity_ ||
         identity_->account->pacer.TryTake(bytes, identity_->rights->bytes_per_second);
}

absl::Status Call::Admit(int64_t received_bytes) {
  ATTNBIAS_RETURN_IF_ERROR(CheckAllowed());
  ATTNBIAS_ASSIGN_OR_RETURN(received_memory_, server_state_.engine.cache().Reserve(
                                                  kCallBytes + received_bytes, *caller_));
  return absl::OkStatus();
}

absl::Status Call::HoldDecoded(int64_t bytes) {
  ATTNBIAS_ASSIGN_OR_RETURN(decoded_memory_,
                            server_state_.engine.cache().Reserve(kCopies * bytes, *caller_));
  return absl::OkStatus();
}

absl::StatusOr<PlanPtr> Call::MakePlan(v1::TensorSpec spec, std::string_view path) {
  const absl::StatusOr<Tables> tables = TakeTables(*tables_, spec);
  if (!tables.ok()) return Under(path, tables.status());
  absl::StatusOr<PlanPtr> plan = server_state_.engine.MakePlan(std::move(spec), *tables);
  if (!plan.ok()) return Under(path, plan.status());
  plan_ = *plan;
  return plan;
}

const std::string& Call::request_id() {
  if (request_id_.empty()) {
    request_id_ = RequestId(OnlyValue(context_.client_metadata(), kRequestIdKey));
  }
  return request_id_;
}

void Call::AnswerSent(int64_t bytes) {
  phases_.Enter(Phase::kWrite);
  MessageSent(bytes);
  watchdog_entry_.WriteStarted();
}

void Call::MessageSent(int64_t bytes) {
  bytes_ += bytes;
  server_state_.metrics.MessageSent(method_, bytes);
}

void Call::EndWith(const absl::Status& status) {
  end_ = WithShortMessage(status);
  if (const auto rejection = RejectionOf(status)) {
    server_state_.metrics.Rejected(*rejection);
  }
}

grpc::Status Call::End(const absl::Status& status) {
  EndWith(status);
  if (const std::optional<absl::Duration> delay = RetryDelay(status)) {
    // gRPC's retry policy reads this field.
    context_.AddTrailingMetadata("grpc-retry-pushback-ms",
                                 std::to_string(absl::ToInt64Milliseconds(*delay)));
  }
  if (end_.ok()) return grpc::Status::OK;
  // Lets an operator find the call's line in the log.
  context_.AddTrailingMetadata(kRequestIdKey, request_id());
  return ToGrpcStatus(end_, request_id());
}

std::string RequestId(std::string_view given) {
  if (IsRequestId(given)) return std::string(given);
  static const std::string& of_process = *new std::string(RandomPrefix());
  static std::atomic<uint64_t> next{1};
  return absl::StrCat(of_process, next++);
}

absl::Status Draining() { return absl::UnavailableError("the server is draining; try another"); }

absl::Status Call::WhyCancelled() const {
  absl::Status closed = watchdog_entry_.WhyClosed();
  if (!closed.ok()) return closed;
  if (deadline_ <= std::chrono::steady_clock::now()) {
    return absl::DeadlineExceededError("the deadline has passed");
  }
  return absl::CancelledError("the client has canceled");
}

}  // namespace attnbias
