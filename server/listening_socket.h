// SPDX-License-Identifier: Apache-2.0
// A socket to accept connections on: a TCP port, or a file.
#ifndef ATTNBIAS_SERVER_LISTENING_SOCKET_H_
#define ATTNBIAS_SERVER_LISTENING_SOCKET_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/host_port.h"
#include "server/socket_file.h"

namespace attnbias {

// INVALID_ARGUMENT for what is neither HOST:PORT nor unix:PATH.
absl::Status CheckListenAddress(std::string_view address);

// Non-blocking. Closed, and its file removed, with this object.
class ListeningSocket {
 public:
  // A file gets `socket_mode`. UNAVAILABLE, naming the address, when that
  // fails.
  static absl::StatusOr<ListeningSocket> Open(std::string_view address,
                                              mode_t socket_mode = 0600);

  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();

  int fd() const { return fd_; }
  // The descriptor of a port; whoever takes it closes it.
  int Release();

  // HOST:PORT with the port that was really taken, or unix:PATH.
  const std::string& address() const { return address_; }

 private:
  explicit ListeningSocket(int fd) : fd_(fd) {}
  static absl::StatusOr<ListeningSocket> OpenPort(HostPort address);
  static absl::StatusOr<ListeningSocket> OpenFile(const std::string& path,
                                                  mode_t mode);

  int fd_;
  std::string address_;
  std::unique_ptr<SocketFile> file_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_LISTENING_SOCKET_H_
