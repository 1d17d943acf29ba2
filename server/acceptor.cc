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

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"

namespace attnbias {
namespace {

// How long to leave connections in the kernel's queue when no descriptor is
// free.
constexpr int kRetryMilliseconds = 20;

// Who is at the other end of a connection: an address without its port, or the
// user of a process on this machine.
std::string PeerOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(fd, any, &size) != 0) return "";
  if (address.ss_family == AF_UNIX) {
    ucred user = {};
    size = sizeof(user);
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &size);
    return absl::StrCat("user ", user.uid);
  }
  char text[NI_MAXHOST] = "";
  getnameinfo(any, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

bool OutOfResources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS ||
         error == ENOMEM;
}

}  // namespace

bool IsFileSocket(int fd) {
  int family = AF_UNSPEC;
  socklen_t size = sizeof(family);
  getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size);
  return family == AF_UNIX;
}

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(
    const std::vector<std::string>& addresses, int max_connections,
    mode_t socket_mode) {
  std::vector<ListeningSocket> sockets;
  for (const std::string& address : addresses) {
    ATTNBIAS_ASSIGN_OR_RETURN(ListeningSocket socket,
                              ListeningSocket::Open(address, socket_mode));
    sockets.push_back(std::move(socket));
  }
  const int stop_fd = eventfd(0, EFD_CLOEXEC);
  if (stop_fd < 0) {
    return absl::UnavailableError("no descriptor for the acceptor is free");
  }
  return std::unique_ptr<Acceptor>(
      new Acceptor(std::move(sockets), stop_fd, max_connections));
}

Acceptor::Acceptor(std::vector<ListeningSocket> sockets, int stop_fd,
                   int max_connections)
    : sockets_(std::move(sockets)),
      stop_fd_(stop_fd),
      address_(
          absl::StrJoin(sockets_, ", ",
                        [](std::string* out, const ListeningSocket& socket) {
                          absl::StrAppend(out, socket.address());
                        })),
      max_connections_(max_connections) {}

Acceptor::~Acceptor() {
  Stop();
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
  sockets_.clear();
}

int64_t Acceptor::connections() {
  MutexLock lock(mutex_);
  ForgetClosedLocked();
  return static_cast<int64_t>(connections_.size());
}

void Acceptor::AcceptUntilStopped() {
  std::vector<pollfd> ready = {{stop_fd_, POLLIN, 0}};
  for (const ListeningSocket& socket : sockets_) {
    ready.push_back({socket.fd(), POLLIN, 0});
  }
  for (;;) {
    if (poll(ready.data(), ready.size(), -1) < 0) continue;  // a signal
    if (ready.front().revents != 0) return;
    for (const pollfd& socket : ready) {
      if (socket.revents != 0) AcceptOne(socket.fd);
    }
  }
}

void Acceptor::AcceptOne(int listen_fd) {
  const int fd =
      accept4(listen_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
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
  const int yes = 1;  // of no effect on a file's socket
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
