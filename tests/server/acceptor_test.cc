// SPDX-License-Identifier: Apache-2.0
#include "server/acceptor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/host_port.h"
#include "tests/testing/status_matchers.h"

namespace attnbias::acceptor_test {
namespace {

using testing::HasSubstr;

// A connected socket, or -1. `from` is an address of this machine.
int Connect(const Acceptor& acceptor, const char* from = "127.0.0.1") {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in own = {};
  own.sin_family = AF_INET;
  inet_pton(AF_INET, from, &own.sin_addr);
  bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof(own));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  const std::string& all = acceptor.address();
  address.sin_port = htons(ParseHostPort(all.substr(0, all.find(',')))->port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) ==
      0) {
    return fd;
  }
  close(fd);
  return -1;
}

// A connected socket, or -1.
int ConnectToFile(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) ==
      0) {
    return fd;
  }
  close(fd);
  return -1;
}

std::unique_ptr<Acceptor> Listen(int max_connections) {
  return Acceptor::Listen({"127.0.0.1:0"}, max_connections).value();
}

TEST(Acceptor, HandsOverConnectionsUpToTheLimit) {
  const auto acceptor = Listen(1);
  std::promise<int> connected;
  std::promise<void> rejected;
  acceptor->Start({[&](int fd) { connected.set_value(fd); },
                   [&] { rejected.set_value(); }});
  const int first = Connect(*acceptor);
  const int accepted = connected.get_future().get();
  EXPECT_EQ(acceptor->connections(), 1);
  const int second = Connect(*acceptor);
  rejected.get_future().get();
  char byte;
  EXPECT_LE(read(second, &byte, 1), 0) << "closed at once";
  for (int fd : {first, second, accepted}) close(fd);
}

TEST(Acceptor, APeerHasNoMoreConnectionsThanItLeavesToOthers) {
  const auto acceptor = Listen(8);
  std::atomic<int> accepted = 0;
  std::atomic<int> rejected = 0;
  acceptor->Start({[&](int) { ++accepted; }, [&] { ++rejected; }});
  std::vector<int> clients;
  const auto connect = [&](const char* from, int count) {
    const int before = accepted + rejected;
    for (int i = 0; i < count; ++i) clients.push_back(Connect(*acceptor, from));
    while (accepted + rejected < before + count) std::this_thread::yield();
    return accepted.load();
  };
  EXPECT_EQ(connect("127.0.0.1", 6), 4);
  EXPECT_EQ(connect("127.0.0.2", 6), 4 + 2);
  EXPECT_EQ(connect("127.0.0.3", 6), 4 + 2 + 1);
  acceptor->Stop();
  for (int fd : clients) close(fd);
}

TEST(Acceptor, NoticesConnectionsThatWereClosed) {
  const auto acceptor = Listen(1);
  std::promise<int> connected[2];
  int count = 0;
  acceptor->Start({[&](int fd) { connected[count++].set_value(fd); }, [] {}});
  for (auto& promise : connected) {
    const int client = Connect(*acceptor);
    close(promise.get_future().get());
    EXPECT_EQ(acceptor->connections(), 0);
    close(client);
  }
}

TEST(Acceptor, RefusesConnectionsAfterStop) {
  const auto acceptor = Listen(9);
  acceptor->Start({[](int fd) { close(fd); }, [] {}});
  acceptor->Stop();
  EXPECT_EQ(Connect(*acceptor), -1);
}

TEST(Acceptor, AcceptsOnAllItsAddresses) {
  const std::string path = testing::TempDir() + "acceptor_all.sock";
  auto acceptor = Acceptor::Listen({"127.0.0.1:0", "unix:" + path}, 9).value();
  EXPECT_THAT(acceptor->address(),
              testing::MatchesRegex("127.0.0.1:[0-9]+, unix:" + path));
  std::atomic<int> accepted = 0;
  acceptor->Start({[&](int fd) {
                     ++accepted;
                     close(fd);
                   },
                   [] {}});
  const int clients[] = {Connect(*acceptor), ConnectToFile(path)};
  while (accepted < 2) std::this_thread::yield();
  acceptor->Stop();
  EXPECT_EQ(ConnectToFile(path), -1);
  EXPECT_FALSE(std::filesystem::exists(path));
  for (int fd : clients) close(fd);
}

TEST(Acceptor, AUserOfASocketFileHasNoMoreConnectionsThanItLeavesToOthers) {
  const std::string path = testing::TempDir() + "acceptor_share.sock";
  const auto acceptor =
      Acceptor::Listen({"127.0.0.1:0", "unix:" + path}, 8).value();
  std::atomic<int> accepted = 0;
  std::atomic<int> rejected = 0;
  acceptor->Start({[&](int) { ++accepted; }, [&] { ++rejected; }});
  std::vector<int> clients;
  for (int i = 0; i < 6; ++i) clients.push_back(ConnectToFile(path));
  while (accepted + rejected < 6) std::this_thread::yield();
  EXPECT_EQ(accepted, 4);
  clients.push_back(Connect(*acceptor));
  while (accepted + rejected < 7) std::this_thread::yield();
  EXPECT_EQ(accepted, 5) << "another peer";
  acceptor->Stop();
  for (int fd : clients) close(fd);
}

TEST(Acceptor, LeavesNoFileWhereAnotherAddressFails) {
  const std::string path = testing::TempDir() + "acceptor_failed.sock";
  EXPECT_THAT(
      Acceptor::Listen({"unix:" + path, "unix:" + path}, 1),
      StatusIs(absl::StatusCode::kUnavailable,
               HasSubstr("unix:" + path + ": another server listens there")));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Acceptor, NamesAnAddressThatItCannotHave) {
  const auto acceptor = Listen(1);
  EXPECT_THAT(
      Acceptor::Listen({acceptor->address()}, 1),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr(acceptor->address())));
  EXPECT_THAT(Acceptor::Listen({"no.such.host.invalid:1"}, 1),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("no.such.host.invalid:1")));
}

}  // namespace
}  // namespace attnbias::acceptor_test
