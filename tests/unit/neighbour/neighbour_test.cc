// SPDX-License-Identifier: Apache-2.0
// The client in a program that already has google.rpc and grpc.health.v1.
#include "tests/unit/neighbour/neighbour.h"

#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "attnbias/client.h"
#include "attnbias/error.h"

namespace attnbias {
namespace {

TEST(Neighbour, ClientTalksToServerInOneProcess) {
  int port = 0;
  const std::unique_ptr<grpc::Server> server = StartNeighbour(&port);
  const auto client = Client::Create({.target = "127.0.0.1:" + std::to_string(port)});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(*client->CheckHealth(""), Health::kServing);

  const absl::Status status = client->CheckHealth("other").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "a wrong service");
  const std::vector<FieldViolation> violations = FieldViolations(status);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "service");
  EXPECT_EQ(violations[0].description, "got other");
}

}  // namespace
}  // namespace attnbias
