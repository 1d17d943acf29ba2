// SPDX-License-Identifier: Apache-2.0
// Accepts connections and hands them to gRPC.
//
// The listener of gRPC 1.51 stops accepting for ever once the process has run
// out of file descriptors, and it does not limit connections. This one waits
// for free descriptors, and limits connections.
#ifndef ATTNBIAS_SERVER_ACCEPTOR_H_
#define ATTNBIAS_SERVER_ACCEPTOR_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/mutex.h"
#include "server/listening_socket.h"

namespace attnbias {

// Whether a connected socket is that of a file: unix:PATH.
bool IsFileSocket(int fd);

class Acceptor {
 public:
  struct Handlers {
    // Takes ownership of a connected, non-blocking socket.
    std::function<void(int fd)> on_connection;
    // Told of a connection that was closed because of the limit.
    std::function<void()> on_rejected;
  };

  // Binds and listens; connections wait until Start. One peer has at most as
  // many connections as it leaves to others. Socket files get `socket_mode`.
  // UNAVAILABLE, naming the address, when that fails.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(
      const std::vector<std::string>& addresses, int max_connections,
      mode_t socket_mode = 0600);

  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;
  ~Acceptor();

  // The addresses, with the ports that were really taken, joined by ", ".
  const std::string& address() const { return address_; }

  // Once. Calls the handlers from one thread of its own.
  void Start(Handlers handlers);
  // Closes the listening sockets: new connects are refused, open connections
  // stay. No handler runs afterwards.
  void Stop();

  // Connections handed over and still open.
  int64_t connections();

 private:
  // The kernel may give a closed connection's number to another file, but not
  // its inode.
  struct Connection {
    int fd;
    ino_t inode;
    // The other end's address without its port, or its user.
    std::string peer;
  };

  Acceptor(std::vector<ListeningSocket> sockets, int stop_fd,
           int max_connections);
  void AcceptUntilStopped();
  void AcceptOne(int listen_fd);
  void Admit(int fd);
  // False at the limit, or at the peer's share of it.
  bool Remember(int fd);
  bool HasRoomLocked(const std::string& peer) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetClosedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::vector<ListeningSocket> sockets_;
  const int stop_fd_;
  const std::string address_;
  const int64_t max_connections_;
  Handlers handlers_;
  Mutex mutex_;
  std::vector<Connection> connections_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_ACCEPTOR_H_
