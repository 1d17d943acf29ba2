// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/target.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace attnbias::target_test {
namespace {

struct Good {
  const char* given;
  const char* target;
};

class GoodTarget : public testing::TestWithParam<Good> {};

TEST_P(GoodTarget, DefaultsToServicePort) {
  EXPECT_EQ(TargetFrom(GetParam().given).value(), GetParam().target);
}

INSTANTIATE_TEST_SUITE_P(
    Target, GoodTarget,
    testing::Values(
        Good{"localhost", "localhost:50051"}, Good{"a-b.c", "a-b.c:50051"},
        Good{"host:1", "host:1"}, Good{"127.0.0.1", "127.0.0.1:50051"}, Good{"::1", "[::1]:50051"},
        Good{"[::1]", "[::1]:50051"}, Good{"[::1]:65535", "[::1]:65535"},
        Good{"fe80::1%eth0", "[fe80::1%eth0]:50051"}, Good{"dns:host", "dns:host:50051"},
        Good{"dns:///host", "dns:///host:50051"}, Good{"dns:///host:7", "dns:///host:7"},
        Good{"dns://9.9.9.9/host", "dns://9.9.9.9/host:50051"},
        Good{"ipv4:1.2.3.4,5.6.7.8:9", "ipv4:1.2.3.4:50051,5.6.7.8:9"},
        Good{"ipv6:[::1]:2,[::2]", "ipv6:[::1]:2,[::2]:50051"},
        Good{"ipv6:::1", "ipv6:[::1]:50051"}, Good{"unix:/run/a.sock", "unix:/run/a.sock"},
        Good{"unix:///run/a.sock", "unix:///run/a.sock"},
        Good{"unix-abstract:a", "unix-abstract:a"}, Good{"xds:///service", "xds:///service"}));

class BadTarget : public testing::TestWithParam<const char*> {};

TEST_P(BadTarget, IsRejectedAndQuoted) {
  const absl::Status status = TargetFrom(GetParam()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), absl::StrCat("target: got \"", GetParam(),
                                           "\", want host, host:port, [IPv6]:port, unix:/path "
                                           "or another gRPC target"));
}

INSTANTIATE_TEST_SUITE_P(Target, BadTarget,
                         testing::Values("", " ", "host:", "host:0", "host:65536", "host:-1",
                                         "host:5x", "a b", "a,b", "/run/a.sock", "[::1", "[::1]x",
                                         "[host]", "http://host", "https://host:1",
                                         "unix:", "ipv4:", "ipv4:1.2.3.4,", "dns:///", "host:1:2"));

TEST(Target, RecognizesLocalTargets) {
  for (const char* target :
       {"localhost", "localhost:1", "127.0.0.1", "127.1.2.3:4", "::1", "[::1]:1", "dns:localhost",
        "dns:///localhost", "ipv4:127.0.0.1,127.0.0.2:7", "ipv6:::1", "unix:/run/a.sock",
        "unix-abstract:a"}) {
    EXPECT_TRUE(IsOnThisMachine(TargetFrom(target).value())) << target;
  }
  for (const char* target : {"host", "localhost.example", "127.example", "127.0.0.1.example",
                             "10.0.0.1", "::2", "dns:host", "dns://9.9.9.9/localhost",
                             "ipv4:127.0.0.1,10.0.0.1", "xds:///localhost", "vsock:1:2"}) {
    EXPECT_FALSE(IsOnThisMachine(TargetFrom(target).value())) << target;
  }
}

}  // namespace
}  // namespace attnbias::target_test
