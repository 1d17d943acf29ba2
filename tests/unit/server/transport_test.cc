// SPDX-License-Identifier: Apache-2.0
#include "server/run/transport.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/unit/support/status_matchers.h"

namespace attnbias::transport_test {
namespace {

struct Good {
  const char* text;
  const char* host;
  int port;
  const char* again;
};

class GoodAddress : public testing::TestWithParam<Good> {};

TEST_P(GoodAddress, RoundTrips) {
  const absl::StatusOr<ListenAddress> parsed = ParseListenAddress(GetParam().text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->host, GetParam().host);
  EXPECT_EQ(parsed->port, GetParam().port);
  EXPECT_EQ(ToString(*parsed), GetParam().again);
}

INSTANTIATE_TEST_SUITE_P(ListenAddress, GoodAddress,
                         testing::Values(Good{"localhost:0", "localhost", 0, "localhost:0"},
                                         Good{"0.0.0.0:65535", "0.0.0.0", 65535, "0.0.0.0:65535"},
                                         Good{"[::1]:80", "::1", 80, "[::1]:80"},
                                         Good{":9464", "::", 9464, "[::]:9464"},
                                         Good{"unix:a/b", "", 0, "unix:a/b"},
                                         Good{"unix:///a", "", 0, "unix:/a"}));

class BadAddress : public testing::TestWithParam<const char*> {};

TEST_P(BadAddress, IsRejectedAndQuoted) {
  EXPECT_THAT(ParseListenAddress(GetParam()), IsInvalidWith(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(ListenAddress, BadAddress,
                         testing::Values("", "localhost", "localhost:", "localhost:65536",
                                         "localhost:-1", "localhost:80x", "::1:80",
                                         "unix:", "unix://a/b"));

TEST(ListenAddress, RejectsSocketPathThatIsTooLong) {
  EXPECT_THAT(ParseListenAddress("unix:" + std::string(107, 'a')), IsOk());
  EXPECT_THAT(ParseListenAddress("unix:" + std::string(108, 'a')),
              IsInvalidWith("a path of 108 bytes, want at most 107"));
}

}  // namespace
}  // namespace attnbias::transport_test
