// SPDX-License-Identifier: Apache-2.0
// gRPC has no place where others see what it reads. But it reads with two
// functions of other libraries, recvmsg and SSL_read, and a program's own
// functions of these names come before theirs.
#include "server/header_bound.h"

#include <dlfcn.h>
#include <openssl/crypto.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <unordered_map>

#include "core/base/mutex.h"

namespace attnbias {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kFrameHead = 9;
// Types of frames.
constexpr char kHeaders = 1;
constexpr char kContinuation = 9;

// Connections in plaintext, by their sockets. gRPC closes these without
// telling; a number's next connection takes the place of the last.
class Connections {
 public:
  static Connections& Get() {
    static auto& connections = *new Connections;  // gRPC's threads may be last
    return connections;
  }

  void Add(int fd) {
    MutexLock lock(mutex_);
    connections_[fd] = {.inode = InodeOf(fd), .bound = {}};
  }

  // Null for a socket that was never added. One thread at a time reads it.
  HeaderBound* Find(int fd) {
    MutexLock lock(mutex_);
    const auto found = connections_.find(fd);
    if (found == connections_.end() || found->second.inode != InodeOf(fd)) {
      return nullptr;
    }
    return &found->second.bound;
  }

 private:
  // The kernel may give a closed connection's number to another file, but not
  // its inode.
  struct Connection {
    ino_t inode;
    HeaderBound bound;
  };

  static ino_t InodeOf(int fd) {
    struct stat status = {};
    fstat(fd, &status);
    return status.st_ino;
  }

  Mutex mutex_;
  std::unordered_map<int, Connection> connections_ ABSL_GUARDED_BY(mutex_);
};

bool PassAll(HeaderBound& bound, const msghdr& message, size_t size) {
  for (size_t i = 0; size > 0; ++i) {
    const iovec& piece = message.msg_iov[i];
    const size_t taken = std::min(size, piece.iov_len);
    if (!bound.Pass({static_cast<const char*>(piece.iov_base), taken})) {
      return false;
    }
    size -= taken;
  }
  return true;
}

// The one of a connection over TLS; made when it is first asked for.
HeaderBound& BoundOf(SSL* ssl) {
  static const int index = SSL_get_ex_new_index(
      0, nullptr, nullptr, nullptr,
      [](void*, void* bound, CRYPTO_EX_DATA*, int, long, void*) {
        delete static_cast<HeaderBound*>(bound);
      });
  void* bound = SSL_get_ex_data(ssl, index);
  if (bound == nullptr) {
    bound = new HeaderBound;
    SSL_set_ex_data(ssl, index, bound);
  }
  return *static_cast<HeaderBound*>(bound);
}

thread_local int last_socket_read = -1;

// The function of that name that this program's own hides.
template <typename Function>
Function Hidden(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

bool HeaderBound::Pass(std::string_view bytes) {
  while (is_http2_ && header_bytes_ <= kMaxBytes && !bytes.empty()) {
    size_t taken = std::min(payload_left_, bytes.size());
    payload_left_ -= taken;
    bytes.remove_prefix(taken);
    taken = bytes.copy(prefix_.data() + prefix_size_,
                       prefix_wanted_ - prefix_size_);
    prefix_size_ += taken;
    bytes.remove_prefix(taken);
    if (prefix_size_ == prefix_wanted_) EndOfPrefix();
  }
  return header_bytes_ <= kMaxBytes;
}

void HeaderBound::EndOfPrefix() {
  if (prefix_wanted_ == kPreface.size()) {
    is_http2_ = std::ranges::equal(prefix_, kPreface);
  } else {
    for (size_t i = 0; i < 3; ++i) {
      payload_left_ = payload_left_ << 8 | static_cast<uint8_t>(prefix_[i]);
    }
    const char type = prefix_[3];
    if (type == kHeaders) header_bytes_ = 0;
    if (type == kHeaders || type == kContinuation) {
      header_bytes_ += kFrameHead + payload_left_;
    }
  }
  prefix_size_ = 0;
  prefix_wanted_ = kFrameHead;
}

void BoundHeadersOf(int fd) { Connections::Get().Add(fd); }

int LastSocketRead() { return last_socket_read; }

}  // namespace attnbias

extern "C" {

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static const auto hidden = attnbias::Hidden<decltype(&recvmsg)>("recvmsg");
  const ssize_t size = hidden(fd, message, flags);
  // Other flags ask for other things than the next bytes.
  if (size <= 0 || flags != 0) return size;
  attnbias::last_socket_read = fd;
  attnbias::HeaderBound* const bound = attnbias::Connections::Get().Find(fd);
  if (bound == nullptr ||
      attnbias::PassAll(*bound, *message, static_cast<size_t>(size))) {
    return size;
  }
  errno = ECONNRESET;
  return -1;
}

int SSL_read(SSL* ssl, void* bytes, int size) {
  static const auto hidden = attnbias::Hidden<decltype(&SSL_read)>("SSL_read");
  const int read = hidden(ssl, bytes, size);
  if (read <= 0 || SSL_is_server(ssl) == 0 ||
      attnbias::BoundOf(ssl).Pass(
          {static_cast<const char*>(bytes), static_cast<size_t>(read)})) {
    return read;
  }
  return -1;
}

}  // extern "C"
