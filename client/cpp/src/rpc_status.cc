// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/rpc_status.h"

#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "attnbias/error.h"
#include "attnbias/internal/rpc.pb.h"

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

// `says` is how gRPC names the reason for having no connection.
std::string WhyUnreached(absl::string_view says, absl::string_view target) {
  if (absl::StartsWith(says, "DNS resolution failed")) {
    return absl::StrCat(target, " is not found: is the name right?");
  }
  if (absl::StrContains(says, "Failed parsing HTTP/2")) {
    return absl::StrCat(target,
                        " answers, but not with gRPC: is it the right port?");
  }
  if (absl::StrContains(says, "Socket closed") ||
      absl::StrContains(says, "reset by peer")) {
    return absl::StrCat(target,
                        " answers, but not with gRPC in plaintext: does it "
                        "need TLS? This client has none");
  }
  return absl::StrCat("nothing answers at ", target,
                      ": is the server running? attnbias-server starts one, "
                      "ClientOptions::target asks another");
}

std::string MessageOf(const grpc::Status& status, absl::string_view target) {
  const std::string& says = status.error_message();
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return says;
  for (const absl::string_view start :
       {"connections to all backends failing",
        "failed to connect to all addresses", "DNS resolution failed"}) {
    if (!absl::StartsWith(says, start)) continue;
    return absl::StrCat(WhyUnreached(says, target), " (", says, ")");
  }
  return says;
}

}  // namespace

absl::Status FromRpc(const grpc::Status& status, absl::string_view target) {
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()),
                      MessageOf(status, target));
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

std::vector<FieldViolation> FieldViolations(const absl::Status& status) {
  std::vector<FieldViolation> violations;
  const auto payload = status.GetPayload(kDetailsUrl);
  if (!payload.has_value()) return violations;
  const auto bad =
      FindDetail<internal::BadRequest>(static_cast<std::string>(*payload));
  if (!bad.has_value()) return violations;
  for (const auto& violation : bad->field_violations()) {
    violations.push_back({violation.field(), violation.description()});
  }
  return violations;
}

}  // namespace attnbias
