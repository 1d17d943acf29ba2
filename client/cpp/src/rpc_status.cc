// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/rpc_status.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "attnbias/error.h"
#include "attnbias/internal/printable.h"
#include "attnbias/internal/rpc.pb.h"
#include "client/cpp/src/unreached.h"

namespace attnbias {
namespace {

constexpr char kDetailsUrl[] = "type.googleapis.com/google.rpc.Status";

// The first detail that parses of google.rpc's type of the name that `Detail`
// has.
template <typename Detail>
std::optional<Detail> FindDetail(const std::string& serialized) {
  internal::Status status;
  if (!status.ParseFromString(serialized)) return std::nullopt;
  const std::string type =
      absl::StrCat("/google.rpc.", Detail::descriptor()->name());
  for (const auto& any : status.details()) {
    Detail detail;
    if (absl::EndsWith(any.type_url(), type) &&
        detail.ParseFromString(any.value())) {
      return detail;
    }
  }
  return std::nullopt;
}

// Those that FromRpc kept; empty without any.
std::string DetailsOf(const absl::Status& status) {
  return std::string(status.GetPayload(kDetailsUrl).value_or(absl::Cord()));
}

// What to try, where that is known.
std::string Advice(const grpc::Status& status, const ClientOptions& options,
                   bool has_token) {
  const std::string& says = status.error_message();
  const std::string& target = options.target;
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return IsUnreached(status) ? WhyUnreached(says, options) : "";
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::StrCat("no complete answer from ", target,
                          " within the timeout of ",
                          absl::FormatDuration(options.timeout));
    case grpc::StatusCode::UNAUTHENTICATED:
      if (has_token) {
        return absl::StrCat(target,
                            " does not know this token: is it of this server, "
                            "and still valid?");
      }
      return absl::StrCat(target,
                          " wants to know who calls: set token_file, or "
                          "tls.cert_file and tls.key_file");
    case grpc::StatusCode::PERMISSION_DENIED:
      return absl::StrCat(target,
                          " does not let this caller do it: ask those who run "
                          "it, or call with another token or certificate");
    default:
      return "";
  }
}

}  // namespace

absl::Status FromRpc(const grpc::Status& status, const ClientOptions& options,
                     bool has_token) {
  std::string message = internal::Printable(status.error_message());
  const std::string advice = Advice(status, options, has_token);
  if (!advice.empty()) message = absl::StrCat(advice, " (", message, ")");
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()),
                      message);
  if (!result.ok() && !status.error_details().empty()) {
    result.SetPayload(kDetailsUrl, absl::Cord(status.error_details()));
  }
  return result;
}

std::optional<absl::Duration> RetryDelay(const grpc::Status& status) {
  const auto info = FindDetail<internal::RetryInfo>(status.error_details());
  if (!info.has_value()) return std::nullopt;
  return absl::Seconds(info->retry_delay().seconds()) +
         absl::Nanoseconds(info->retry_delay().nanos());
}

std::string Reason(const absl::Status& status) {
  const auto info = FindDetail<internal::ErrorInfo>(DetailsOf(status));
  return info.has_value() ? internal::Printable(info->reason()) : "";
}

std::string RequestId(const absl::Status& status) {
  const auto info = FindDetail<internal::RequestInfo>(DetailsOf(status));
  return info.has_value() ? internal::Printable(info->request_id()) : "";
}

std::vector<FieldViolation> FieldViolations(const absl::Status& status) {
  std::vector<FieldViolation> violations;
  const auto bad = FindDetail<internal::BadRequest>(DetailsOf(status));
  if (!bad.has_value()) return violations;
  for (const auto& violation : bad->field_violations()) {
    violations.push_back({internal::Printable(violation.field()),
                          internal::Printable(violation.description())});
  }
  return violations;
}

}  // namespace attnbias
