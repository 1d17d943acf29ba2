// SPDX-License-Identifier: Apache-2.0
#include "server/host_port.h"

#include "gtest/gtest.h"

namespace attnbias::host_port_test {
namespace {

struct Good {
  const char* text;
  const char* host;
  int port;
};

class GoodAddress : public testing::TestWithParam<Good> {};

TEST_P(GoodAddress, IsSplitAndJoinedAgain) {
  const absl::StatusOr<HostPort> parsed = ParseHostPort(GetParam().text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->host, GetParam().host);
  EXPECT_EQ(parsed->port, GetParam().port);
  EXPECT_EQ(ToString(*parsed), GetParam().text);
}

INSTANTIATE_TEST_SUITE_P(
    HostPort, GoodAddress,
    testing::Values(Good{"localhost:0", "localhost", 0},
                    Good{"0.0.0.0:65535", "0.0.0.0", 65535},
                    Good{"[::1]:80", "::1", 80}, Good{":9464", "", 9464}));

class BadAddress : public testing::TestWithParam<const char*> {};

TEST_P(BadAddress, IsRefusedAndQuoted) {
  const absl::Status status = ParseHostPort(GetParam()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(GetParam()), absl::string_view::npos);
}

INSTANTIATE_TEST_SUITE_P(HostPort, BadAddress,
                         testing::Values("", "localhost", "localhost:",
                                         "localhost:65536", "localhost:-1",
                                         "localhost:80x", "::1:80"));

}  // namespace
}  // namespace attnbias::host_port_test
