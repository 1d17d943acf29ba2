// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/rpc_status.h"

#include <string>

#include "gtest/gtest.h"

namespace attnbias::rpc_status_test {
namespace {

std::string Told(const std::string& says) {
  const absl::Status status = FromRpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, says),
                                      {.target = "host:1", .tls = TlsOptions{.enabled = false}},
                                      /*has_token=*/false);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  return std::string(status.message());
}

struct Unreached {
  const char* says;
  const char* told;
};

class UnreachedServer : public testing::TestWithParam<Unreached> {};

// gRPC 1.51's messages for a closed port, Python's http.server, the metrics port, openssl's
// s_server and an unknown name.
TEST_P(UnreachedServer, ErrorSuggestsAFix) {
  const auto [says, told] = GetParam();
  EXPECT_EQ(Told(says), std::string(told) + " (" + says + ")");
}

INSTANTIATE_TEST_SUITE_P(
    RpcStatus, UnreachedServer,
    testing::Values(Unreached{"connections to all backends failing; last error: UNKNOWN: "
                              "ipv4:127.0.0.1:1: Failed to connect to remote host: "
                              "Connection refused",
                              "nothing is answering at host:1: is the server running? "
                              "Start one with attnbias-server"},
                    Unreached{"failed to connect to all addresses; last error: UNKNOWN: "
                              "unix:/a: No such file or directory",
                              "nothing is answering at host:1: is the server running? "
                              "Start one with attnbias-server"},
                    Unreached{"connections to all backends failing; last error: "
                              "UNAVAILABLE: ipv4:127.0.0.1:1: Failed parsing HTTP/2",
                              "host:1 answers, but does not speak gRPC: is this the right port?"},
                    Unreached{"connections to all backends failing; last error: UNKNOWN: "
                              "ipv4:127.0.0.1:1: Trying to connect an http1.x server",
                              "host:1 answers, but does not speak gRPC: is this the right port?"},
                    Unreached{"connections to all backends failing; last error: "
                              "UNAVAILABLE: ipv4:127.0.0.1:1: Socket closed",
                              "host:1 answers, but does not speak gRPC in plaintext: does it "
                              "need TLS? Set tls"},
                    Unreached{"DNS resolution failed for host:1: C-ares status is not "
                              "ARES_SUCCESS qtype=AAAA name=host is_balancer=0: Domain "
                              "name not found",
                              "host:1 cannot be resolved: is the name right?"}));

TEST(FromRpc, DeadlineErrorStatesTheTimeout) {
  const absl::Status status = FromRpc(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline"),
                                      {.target = "host:1", .timeout = absl::Milliseconds(30)},
                                      /*has_token=*/false);
  EXPECT_EQ(status.message(),
            "no complete response from host:1 within the timeout of 30ms "
            "(Deadline)");
}

TEST(FromRpc, KeepsServerMessages) {
  EXPECT_EQ(Told("the server is draining"), "the server is draining");
  EXPECT_EQ(Told("Socket closed"), "Socket closed");
}

}  // namespace
}  // namespace attnbias::rpc_status_test
