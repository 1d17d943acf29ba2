// SPDX-License-Identifier: Apache-2.0
#include "server/metrics_listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/host_port.h"
#include "tests/testing/status_matchers.h"

namespace attnbias::metrics_listener_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kGet[] = "GET /metrics HTTP/1.1\r\nHost: a\r\n";

// A client that says what it wants to.
class Peer {
 public:
  explicit Peer(const MetricsListener& listener)
      : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(ParseHostPort(listener.address())->port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(
        connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
        0);
    const timeval patience = {.tv_sec = 30, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  }
  ~Peer() { close(fd_); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // False once the listener has closed the connection.
  bool Send(const std::string& bytes) {
    return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }

  // All that comes until the listener closes the connection.
  std::string Receive() {
    std::string all;
    char buffer[4096];
    for (ssize_t size; (size = recv(fd_, buffer, sizeof(buffer), 0)) > 0;) {
      all.append(buffer, static_cast<size_t>(size));
    }
    return all;
  }

 private:
  const int fd_;
};

class MetricsListenerTest : public testing::Test {
 protected:
  std::string Answer(const std::string& request) {
    Peer peer(*listener_);
    peer.Send(request);
    return peer.Receive();
  }

  const std::unique_ptr<MetricsListener> listener_ = *MetricsListener::Listen(
      "127.0.0.1:0", [] { return std::string("some 1\n"); });
};

TEST_F(MetricsListenerTest, ServesMetricsAndNothingElse) {
  const std::string answer = Answer(std::string(kGet) + "\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nsome 1\n"));
  EXPECT_THAT(Answer("GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
              StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Answer("POST /metrics HTTP/1.1\r\nHost: a\r\n\r\n"),
              StartsWith("HTTP/1.1 405 "));
}

TEST_F(MetricsListenerTest, TakesNoPortThatIsTaken) {
  EXPECT_THAT(MetricsListener::Listen(listener_->address(),
                                      [] { return std::string(); })
                  .status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr(listener_->address())));
}

TEST_F(MetricsListenerTest, AnswersRangesWithTheWhole) {
  std::string ranges = "Range: bytes=0-1";
  for (int i = 0; i < 1000; ++i) ranges += ",0-1";
  const std::string answer = Answer(kGet + ranges + "\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_LT(answer.size(), 1000u);
}

TEST_F(MetricsListenerTest, ReadsNoBody) {
  Peer peer(*listener_);
  peer.Send(
      "POST /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
      "\r\n");
  const std::string chunk = "100000\r\n" + std::string(1 << 20, 'x') + "\r\n";
  int sent = 0;
  while (sent < 64 && peer.Send(chunk)) ++sent;
  EXPECT_LT(sent, 64);
}

TEST_F(MetricsListenerTest, ReadsFewHeaders) {
  Peer peer(*listener_);
  peer.Send(kGet);
  const std::string header = "X: " + std::string(1000, 'x') + "\r\n";
  int sent = 0;
  while (sent < 100'000 && peer.Send(header)) ++sent;
  EXPECT_LT(sent, 100'000);
}

// Each byte comes soon enough, and the last one never.
TEST_F(MetricsListenerTest, EndsRequestsThatDrip) {
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 40; ++i) {
    peers.push_back(std::make_unique<Peer>(*listener_));
    peers.back()->Send("GET /");
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto all_ended = [&] {
    bool ended = true;
    for (const auto& peer : peers) {
      if (peer->Send("x")) ended = false;
    }
    return ended;
  };
  while (!all_ended() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  EXPECT_LT(std::chrono::steady_clock::now(), end);
  EXPECT_THAT(Answer(std::string(kGet) + "\r\n"), EndsWith("some 1\n"));
}

}  // namespace
}  // namespace attnbias::metrics_listener_test
