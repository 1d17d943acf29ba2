// SPDX-License-Identifier: Apache-2.0
#include "server/service/grpc_status.h"

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "core/base/errors.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"

namespace attnbias::grpc_status_test {
namespace {

template <typename Detail>
std::optional<Detail> DetailOf(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), status.error_code());
  EXPECT_EQ(details.message(), status.error_message());
  for (const auto& any : details.details()) {
    Detail detail;
    if (any.UnpackTo(&detail)) return detail;
  }
  return std::nullopt;
}

TEST(ToGrpcStatus, OkHasNoDetails) {
  const grpc::Status status = ToGrpcStatus(absl::OkStatus());
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(status.error_details().empty());
}

TEST(ToGrpcStatus, NamesTheFieldOfABadRequest) {
  const grpc::Status status = ToGrpcStatus(
      Under("spec", absl::InvalidArgumentError(
                        "table.position_ids[0]: got 0 positions, want 1")));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(),
            "spec.table.position_ids[0]: got 0 positions, want 1");
  const auto bad = DetailOf<google::rpc::BadRequest>(status);
  ASSERT_TRUE(bad);
  ASSERT_EQ(bad->field_violations_size(), 1);
  EXPECT_EQ(bad->field_violations(0).field(), "spec.table.position_ids[0]");
  EXPECT_EQ(bad->field_violations(0).description(), "got 0 positions, want 1");
  EXPECT_EQ(DetailOf<google::rpc::ErrorInfo>(status)->reason(),
            "INVALID_FIELD");
  EXPECT_FALSE(DetailOf<google::rpc::RetryInfo>(status));
}

TEST(ToGrpcStatus, NamesTheCallThatHasAName) {
  const absl::Status error = absl::InternalError("no");
  const auto request =
      DetailOf<google::rpc::RequestInfo>(ToGrpcStatus(error, "order-7"));
  ASSERT_TRUE(request);
  EXPECT_EQ(request->request_id(), "order-7");
  EXPECT_FALSE(DetailOf<google::rpc::RequestInfo>(ToGrpcStatus(error)));
}

TEST(ToGrpcStatus, AsksToRetryWhatMaySucceedLater) {
  const absl::Status error =
      absl::ResourceExhaustedError("the budget: no room");
  const grpc::Status status = ToGrpcStatus(Under("spec", error));
  EXPECT_EQ(status.error_message(), std::string(error.message()));
  const auto retry = DetailOf<google::rpc::RetryInfo>(status);
  ASSERT_TRUE(retry);
  EXPECT_EQ(retry->retry_delay().seconds(), 1);
  EXPECT_FALSE(DetailOf<google::rpc::BadRequest>(status));
}

TEST(ToGrpcStatus, LetsWhoeverMeetsADrainAskAnotherAtOnce) {
  EXPECT_FALSE(DetailOf<google::rpc::RetryInfo>(
      ToGrpcStatus(absl::UnavailableError("draining"))));
}

TEST(ToGrpcStatus, KeepsAReasonOfItsOwn) {
  const grpc::Status status = ToGrpcStatus(Under(
      "x", WithReason(absl::InvalidArgumentError("no path: here"), "WHY")));
  const auto info = DetailOf<google::rpc::ErrorInfo>(status);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->reason(), "WHY");
  EXPECT_EQ(info->domain(), "attnbias");
  EXPECT_FALSE(DetailOf<google::rpc::BadRequest>(status));
}

TEST(RejectionOf, TellsWhoseLimitItIs) {
  EXPECT_EQ(RejectionOf(absl::ResourceExhaustedError("")),
            Rejection::kOverload);
  EXPECT_EQ(RejectionOf(CallerLimit("")), Rejection::kCallerLimit);
  EXPECT_EQ(RejectionOf(absl::InvalidArgumentError("")), std::nullopt);
}

TEST(ToGrpcStatus, EveryCodeHasItsRow) {
  const auto reason = [](const absl::Status& error) {
    return DetailOf<google::rpc::ErrorInfo>(ToGrpcStatus(error))->reason();
  };
  EXPECT_EQ(reason(absl::CancelledError("")), "CANCELLED");
  EXPECT_EQ(reason(absl::ResourceExhaustedError("")), "OVERLOADED");
  EXPECT_EQ(reason(absl::UnauthenticatedError("")), "UNAUTHENTICATED");
}

}  // namespace
}  // namespace attnbias::grpc_status_test
