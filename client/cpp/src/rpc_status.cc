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

}  // namespace

absl::Status FromRpc(const grpc::Status& status) {
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
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
