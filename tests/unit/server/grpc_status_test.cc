// SPDX-License-Identifier: Apache-2.0
#include "server/service/grpc_status.h"

#include <optional>

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

TEST(RejectionOf, DistinguishesServerAndCallerLimits) {
  EXPECT_EQ(RejectionOf(absl::ResourceExhaustedError("")), Rejection::kOverload);
  EXPECT_EQ(RejectionOf(CallerLimit("")), Rejection::kCallerLimit);
  EXPECT_EQ(RejectionOf(absl::InvalidArgumentError("")), std::nullopt);
}

TEST(ToGrpcStatus, MapsCodesToReasons) {
  const auto reason = [](const absl::Status& error) {
    return DetailOf<google::rpc::ErrorInfo>(ToGrpcStatus(error))->reason();
  };
  EXPECT_EQ(reason(absl::CancelledError("")), "CANCELLED");
  EXPECT_EQ(reason(absl::ResourceExhaustedError("")), "OVERLOADED");
  EXPECT_EQ(reason(absl::UnauthenticatedError("")), "UNAUTHENTICATED");
}

}  // namespace
}  // namespace attnbias::grpc_status_test
