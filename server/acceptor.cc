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

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "server/host_port.h"

namespace attnbias {
namespace {

// How long to leave connections in the kernel's queue when no descriptor is
// free.
constexpr int kRetryMilliseconds = 20;

absl::Status Failed(const std::string& address, std::string_view what) {
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", address, ": ", std::string(what)));
}

void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));
}

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<AddressList> Resolve(const HostPort& address) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.empty() ? nullptr : address.host.c_str(),
                  std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) return Failed(ToString(address), gai_strerror(error));
  return AddressList(found, &freeaddrinfo);
}

// A listening socket, or -1 with errno set.
int ListenOn(const addrinfo& address) {
  const int fd =
      socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  // [::] serves IPv4 as well.
  if (address.ai_family == AF_INET6)
    SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(fd, address.ai_addr, address.ai_addrlen) == 0 &&
      listen(fd, SOMAXCONN) == 0) {
    return fd;
  }
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

uint16_t PortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

bool OutOfResources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS ||
         error == ENOMEM;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(
    std::string_view address, int max_connections) {
  ATTNBIAS_ASSIGN_OR_RETURN(HostPort wanted, ParseHostPort(address));
  ATTNBIAS_ASSIGN_OR_RETURN(const AddressList resolved, Resolve(wanted));
  int fd = -1;
  for (const addrinfo* at = resolved.get(); at != nullptr && fd < 0;
       at = at->ai_next) {
    fd = ListenOn(*at);
  }
  if (fd < 0) return Failed(ToString(wanted), std::strerror(errno));
  const int stop_fd = eventfd(0, EFD_CLOEXEC);
  if (stop_fd < 0) {
    close(fd);
    return Failed(ToString(wanted), std::strerror(errno));
  }
  wanted.port = PortOf(fd);
  return std::unique_ptr<Acceptor>(
      new Acceptor(fd, stop_fd, ToString(wanted), max_connections));
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
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  handlers_.on_connection(fd);
}

bool Acceptor::Remember(int fd) {
  struct stat status = {};
  fstat(fd, &status);
  MutexLock lock(mutex_);
  // gRPC closes connections without telling: look only when it matters.
  if (static_cast<int64_t>(connections_.size()) >= max_connections_) {
    ForgetClosedLocked();
  }
  if (static_cast<int64_t>(connections_.size()) >= max_connections_) {
    return false;
  }
  connections_.push_back({fd, status.st_ino});
  return true;
}

void Acceptor::ForgetClosedLocked() {
  std::erase_if(connections_, [](const Connection& connection) {
    struct stat status = {};
    return fstat(connection.fd, &status) != 0 ||
           status.st_ino != connection.inode;
  });
}

}  // namespace attnbias
