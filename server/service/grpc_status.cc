// SPDX-License-Identifier: Apache-2.0
#include "server/service/grpc_status.h"

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace attnbias {
namespace {

constexpr char kDomain[] = "attnbias";

struct StatusCodeRow {
  // Used in ErrorInfo if the error itself has no reason.
  std::string_view reason;
  // True if the message's field path becomes a BadRequest.
  bool names_field = false;
  std::optional<Rejection> rejection = std::nullopt;
};

// Indexed by number, since gRPC's codes are Abseil's.
constexpr std::array<StatusCodeRow, 17> kStatusCodes = {{
    {""},
    {"CANCELLED"},
    {"UNKNOWN"},
    {"INVALID_FIELD", true},
    {"DEADLINE_EXCEEDED"},
    {"TABLE_NOT_FOUND", true},
    {"ALREADY_EXISTS"},
    {"PERMISSION_DENIED", true, Rejection::kPermissionDenied},
    {"OVERLOADED", false, Rejection::kOverload},
    {"FINGERPRINT_MISMATCH", true},
    {"ABORTED", false, Rejection::kStalledClient},
    {"OUT_OF_RANGE", true},
    {"UNKNOWN_FIELD", true},
    {"INTERNAL"},
    {"DRAINING", false, Rejection::kDraining},
    {"DATA_LOSS"},
    {"UNAUTHENTICATED", false, Rejection::kUnauthenticated},
}};

const StatusCodeRow& RowOf(const absl::Status& status) {
  return kStatusCodes[static_cast<int>(status.code())];
}

// Returns the field path at the beginning of the message; empty if there is none.
std::string_view FieldOf(const absl::Status& status) {
  if (!RowOf(status).names_field) return "";
  const std::string_view message(status.message().data(), status.message().size());
  const size_t end = message.find(": ");
  if (end == std::string_view::npos) return "";
  const std::string_view path = message.substr(0, end);
  const bool is_path = std::all_of(path.begin(), path.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '[' || c == ']';
  });
  return is_path ? path : "";
}

absl::Status WithMessage(const absl::Status& status, std::string message) {
  absl::Status result(status.code(), message);
  status.ForEachPayload(
      [&result](absl::string_view url, const absl::Cord& cord) { result.SetPayload(url, cord); });
  return result;
}

google::rpc::ErrorInfo InfoOf(const absl::Status& status) {
  google::rpc::ErrorInfo info;
  const std::string reason = ReasonOf(status);
  info.set_reason(reason.empty() ? std::string(RowOf(status).reason) : reason);
  info.set_domain(kDomain);
  return info;
}

}  // namespace

absl::Status Under(std::string_view parent, const absl::Status& status) {
  if (parent.empty() || FieldOf(status).empty()) return status;
  return WithMessage(status, absl::StrCat(std::string(parent), ".", status.message()));
}

absl::Status WithShortMessage(const absl::Status& status) {
  return WithMessage(status, Shortened(status.message(), 1 << 10));
}

std::optional<Rejection> RejectionOf(const absl::Status& status) {
  if (ReasonOf(status) == kCallerLimit) return Rejection::kCallerLimit;
  return RowOf(status).rejection;
}

std::optional<absl::Duration> RetryDelay(const absl::Status& status) {
  if (!absl::IsResourceExhausted(status)) return std::nullopt;
  return absl::Seconds(1);
}

grpc::Status ToGrpcStatus(const absl::Status& status, const std::string& request_id) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(std::string(status.message()));
  details.add_details()->PackFrom(InfoOf(status));
  if (const std::string_view field = FieldOf(status); !field.empty()) {
    google::rpc::BadRequest bad;
    auto* violation = bad.add_field_violations();
    violation->set_field(std::string(field));
    violation->set_description(std::string(status.message().substr(field.size() + 2)));
    details.add_details()->PackFrom(bad);
  }
  if (const std::optional<absl::Duration> delay = RetryDelay(status)) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(absl::ToInt64Seconds(*delay));
    details.add_details()->PackFrom(retry);
  }
  if (!request_id.empty()) {
    google::rpc::RequestInfo request;
    request.set_request_id(request_id);
    details.add_details()->PackFrom(request);
  }
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
          details.SerializeAsString()};
}

}  // namespace attnbias
