// SPDX-License-Identifier: Apache-2.0
// Measures the minimum cost of moving bytes over loopback TCP: one process sends the same warm
// megabyte again and again with plain blocking calls, and this one receives into one buffer,
// without framing or checksums. Each round prints its seconds.
//
//   socket_pump BYTES
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/load/bench/rounds.h"

namespace {

constexpr size_t kSendBytes = size_t{1} << 20;

void Require(bool ok, const char* what) {
  if (!ok) {
    std::perror(what);
    std::exit(1);
  }
}

int Connect(const sockaddr_in& address) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  Require(fd >= 0, "socket");
  Require(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0,
          "connect");
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

// Sends `total` bytes for each byte that the peer sends, until it closes.
[[noreturn]] void Serve(const sockaddr_in& address, size_t total) {
  const int fd = Connect(address);
  const std::vector<char> block(kSendBytes, 1);
  for (char go; recv(fd, &go, 1, 0) == 1;) {
    for (size_t left = total; left > 0;) {
      const ssize_t sent = send(fd, block.data(), std::min(left, kSendBytes), MSG_NOSIGNAL);
      Require(sent > 0, "send");
      left -= static_cast<size_t>(sent);
    }
  }
  std::_Exit(0);
}

void Receive(int fd, std::vector<char>& buffer) {
  Require(send(fd, "", 1, MSG_NOSIGNAL) == 1, "send");
  for (size_t done = 0; done < buffer.size();) {
    const ssize_t got = recv(fd, buffer.data() + done, buffer.size() - done, 0);
    Require(got > 0, "recv");
    done += static_cast<size_t>(got);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s BYTES\n", argv[0]);
    return 2;
  }
  const size_t total = std::stoull(argv[1]);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  Require(bind(listener, any, size) == 0, "bind");
  Require(listen(listener, 1) == 0, "listen");
  Require(getsockname(listener, any, &size) == 0, "getsockname");
  if (fork() == 0) Serve(address, total);
  const int fd = accept(listener, nullptr, nullptr);
  Require(fd >= 0, "accept");
  std::vector<char> buffer(total, 1);  // pages are touched before they are timed
  attnbias::RunRounds([&] { return attnbias::Seconds([&] { Receive(fd, buffer); }); });
}
