// SPDX-License-Identifier: Apache-2.0
#include "server/acceptor.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "core/base/status_macros.h"
#include "server/listening_socket.h"

namespace attnbias {
namespace {

// How long to leave connections in the kernel's queue when no descriptor is
// free.
constexpr int kRetryMilliseconds = 20;

// The address at the other end of a connection, without its port.
std::string PeerOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  char text[NI_MAXHOST] = "";
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(fd, any, &size) == 0) {
    getnameinfo(any, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  }
  return text;
}

bool OutOfResources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS ||
         error == ENOMEM;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(
    std::string_view address, int max_connections) {
  ATTNBIAS_ASSIGN_OR_RETURN(ListeningSocket socket, ListenOn(address));
  const int stop_fd = eventfd(0, EFD_CLOEXEC);
  if (stop_fd < 0) {
    close(socket.fd);
    return absl::UnavailableError("no descriptor for the acceptor is free");
  }
  return std::unique_ptr<Acceptor>(new Acceptor(
      socket.fd, stop_fd, std::move(socket.address), max_connections));
}

Acceptor::Acceptor(int listen_fd, int stop_fd, std::string address,
                   int max_connections)
    : listen_fd_(listen_fd),
      stop_fd_(stop_fd),
      address_(std::move(address)),
      max_connections_(max_connections) {}

Acceptor::~Acceptor() {
  Stop();
  if (!handlers_.on_connection) close(listen_fd_);  // never started
  close(stop_fd_);
}

void Acceptor::Start(Handlers handlers) {
  handlers_ = std::move(handlers);
  thread_ = std::thread([this] { AcceptUntilStopped(); });
}

void Acceptor::Stop() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_fd_, 1);
  thread_.join();
  close(listen_fd_);
}

int64_t Acceptor::connections() {
  MutexLock lock(mutex_);
  ForgetClosedLocked();
  return static_cast<int64_t>(connections_.size());
}

void Acceptor::AcceptUntilStopped() {
  for (;;) {
    pollfd ready[] = {{stop_fd_, POLLIN, 0}, {listen_fd_, POLLIN, 0}};
    if (poll(ready, 2, -1) < 0) continue;  // a signal
    if (ready[0].revents != 0) return;
    AcceptOne();
  }
}

void Acceptor::AcceptOne() {
  const int fd =
      accept4(listen_fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0) {
    Admit(fd);
  } else if (OutOfResources(errno)) {
    pollfd stop = {stop_fd_, POLLIN, 0};
    poll(&stop, 1, kRetryMilliseconds);
  }
}

void Acceptor::Admit(int fd) {
  if (!Remember(fd)) {
    // Counted before the peer can know of it.
    handlers_.on_rejected();
    close(fd);
    return;
  }
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  handlers_.on_connection(fd);
}

bool Acceptor::Remember(int fd) {
  struct stat status = {};
  fstat(fd, &status);
  std::string peer = PeerOf(fd);
  MutexLock lock(mutex_);
  // gRPC closes connections without telling: look only when it matters.
  if (!HasRoomLocked(peer)) ForgetClosedLocked();
  if (!HasRoomLocked(peer)) return false;
  connections_.push_back({fd, status.st_ino, std::move(peer)});
  return true;
}

bool Acceptor::HasRoomLocked(const std::string& peer) const {
  const int64_t room =
      max_connections_ - static_cast<int64_t>(connections_.size());
  const int64_t own = std::ranges::count(connections_, peer, &Connection::peer);
  return own < room;
}

void Acceptor::ForgetClosedLocked() {
  std::erase_if(connections_, [](const Connection& connection) {
    struct stat status = {};
    return fstat(connection.fd, &status) != 0 ||
           status.st_ino != connection.inode;
  });
}

}  // namespace attnbias
