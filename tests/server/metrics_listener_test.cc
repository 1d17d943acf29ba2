// SPDX-License-Identifier: Apache-2.0
#include "server/metrics_listener.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>

#include "gtest/gtest.h"
#include "httplib.h"
#include "tests/testing/status_matchers.h"

namespace attnbias {
namespace {

// This process' descriptor of the socket that listens on the port, or -1.
int ListeningSocket(int port) {
  for (int fd = 0; fd < 1024; ++fd) {
    int listens = 0;
    socklen_t size = sizeof(listens);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 ||
        listens == 0) {
      continue;
    }
    sockaddr_in address = {};
    size = sizeof(address);
    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    if (ntohs(address.sin_port) == port) return fd;
  }
  return -1;
}

bool Answers(int port) {
  httplib::Client client("127.0.0.1", port);
  const httplib::Result result = client.Get("/metrics");
  return result && result->status == 200 && result->body == "some 1\n";
}

std::string Text() { return "some 1\n"; }

TEST(MetricsListener, ServesMetricsAndNothingElse) {
  const auto listener = MetricsListener::Listen({"127.0.0.1", 0}, &Text);
  ASSERT_THAT(listener, IsOk());
  EXPECT_TRUE(Answers((*listener)->port()));
  httplib::Client client("127.0.0.1", (*listener)->port());
  EXPECT_EQ(client.Get("/")->status, 404);
}

TEST(MetricsListener, TakesItsPortAgainAfterAcceptHasFailed) {
  const auto listener = MetricsListener::Listen({"127.0.0.1", 0}, &Text);
  ASSERT_THAT(listener, IsOk());
  const int port = (*listener)->port();
  for (int round = 0; round < 3; ++round) {
    int socket = -1;
    while ((socket = ListeningSocket(port)) < 0) std::this_thread::yield();
    // What accept then says the library takes for the end.
    ASSERT_EQ(shutdown(socket, SHUT_RDWR), 0);
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!Answers(port) && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(Answers(port));
  }
}

}  // namespace
}  // namespace attnbias
