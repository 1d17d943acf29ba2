// SPDX-License-Identifier: Apache-2.0
#include "server/listening_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace attnbias {
namespace {

absl::Status Failed(const std::string& address, absl::string_view what) {
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", address, ": ", what));
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
int Bind(const addrinfo& address) {
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

}  // namespace

absl::Status CheckListenAddress(std::string_view address) {
  return IsUnix(address) ? ParseUnixPath(address).status()
                         : ParseHostPort(address).status();
}

absl::StatusOr<ListeningSocket> ListeningSocket::Open(std::string_view address,
                                                      mode_t socket_mode) {
  if (IsUnix(address)) {
    ATTNBIAS_ASSIGN_OR_RETURN(const std::string path, ParseUnixPath(address));
    return OpenFile(path, socket_mode);
  }
  ATTNBIAS_ASSIGN_OR_RETURN(HostPort port, ParseHostPort(address));
  return OpenPort(std::move(port));
}

absl::StatusOr<ListeningSocket> ListeningSocket::OpenPort(HostPort address) {
  ATTNBIAS_ASSIGN_OR_RETURN(const AddressList resolved, Resolve(address));
  int fd = -1;
  for (const addrinfo* at = resolved.get(); at != nullptr && fd < 0;
       at = at->ai_next) {
    fd = Bind(*at);
  }
  if (fd < 0 && address.host == "::" &&
      (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL)) {
    // All addresses of a machine without IPv6.
    return OpenPort({.host = "0.0.0.0", .port = address.port});
  }
  if (fd < 0) return Failed(ToString(address), std::strerror(errno));
  ListeningSocket result(fd);
  address.port = PortOf(fd);
  result.address_ = ToString(address);
  return result;
}

absl::StatusOr<ListeningSocket> ListeningSocket::OpenFile(
    const std::string& path, mode_t mode) {
  const std::string address = absl::StrCat("unix:", path);
  ListeningSocket result(
      socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (result.fd_ < 0) return Failed(address, std::strerror(errno));
  absl::StatusOr<std::unique_ptr<SocketFile>> file =
      SocketFile::Bind(result.fd_, path, mode);
  if (!file.ok()) return Failed(address, file.status().message());
  result.file_ = *std::move(file);
  if (listen(result.fd_, SOMAXCONN) != 0) {
    return Failed(address, std::strerror(errno));
  }
  result.address_ = address;
  return result;
}

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept
    : fd_(other.Release()),
      address_(std::move(other.address_)),
      file_(std::move(other.file_)) {}

ListeningSocket::~ListeningSocket() {
  // The file first: as long as it is there, somebody listens.
  file_.reset();
  if (fd_ >= 0) close(fd_);
}

int ListeningSocket::Release() { return std::exchange(fd_, -1); }

}  // namespace attnbias
