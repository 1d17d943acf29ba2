// SPDX-License-Identifier: Apache-2.0
// Sockets in the file system: unix:PATH.
#ifndef ATTNBIAS_SERVER_SOCKET_FILE_H_
#define ATTNBIAS_SERVER_SOCKET_FILE_H_

#include <sys/stat.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnbias {

// Whether an address begins with unix:.
bool IsUnix(std::string_view address);

// The path of unix:PATH or, as gRPC's clients may spell it, unix:///PATH.
// INVALID_ARGUMENT for one that no socket can have.
absl::StatusOr<std::string> ParseUnixPath(std::string_view address);

// The file of a socket; removed with this object.
class SocketFile {
 public:
  // Binds `fd` to a path, whose file gets `mode`. The file that a server left
  // behind which is gone is replaced. UNAVAILABLE, saying why, where there is
  // anything else, or no folder.
  static absl::StatusOr<std::unique_ptr<SocketFile>> Bind(
      int fd, const std::string& path, mode_t mode = 0600);

  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;
  // Leaves a file alone that has taken this one's place.
  ~SocketFile();

 private:
  explicit SocketFile(const std::string& path);

  const std::string path_;
  struct stat made_ = {};
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_SOCKET_FILE_H_
