// SPDX-License-Identifier: Apache-2.0
#include "server/socket_file.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"

namespace attnbias {
namespace {

constexpr std::string_view kScheme = "unix:";
// One byte of sun_path ends it.
constexpr size_t kMaxPathBytes = sizeof(sockaddr_un::sun_path) - 1;

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, kMaxPathBytes);
  return address;
}

absl::Status Failed(int error) {
  return absl::UnavailableError(std::strerror(error));
}

// 0, or the error of connecting.
int Connect(const sockaddr_un& address) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int error = connect(fd, reinterpret_cast<const sockaddr*>(&address),
                            sizeof(address)) == 0
                        ? 0
                        : errno;
  close(fd);
  return error;
}

// Another file may have the number of one that was removed, at another time.
bool IsSame(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

// Removes a socket that nobody listens on.
absl::Status RemoveStale(const std::string& path) {
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0) {
    return errno == ENOENT ? absl::OkStatus() : Failed(errno);
  }
  if (!S_ISSOCK(status.st_mode)) {
    return absl::UnavailableError("there is a file that is not a socket");
  }
  switch (const int error = Connect(AddressOf(path))) {
    case 0:
    case EAGAIN:  // with a full queue
      return absl::UnavailableError("another server listens there");
    case ECONNREFUSED:
      return unlink(path.c_str()) == 0 ? absl::OkStatus() : Failed(errno);
    default:
      return Failed(error);
  }
}

}  // namespace

bool IsUnix(std::string_view address) { return address.starts_with(kScheme); }

absl::StatusOr<std::string> ParseUnixPath(std::string_view address) {
  std::string_view path = address.substr(kScheme.size());
  const bool has_authority = path.starts_with("//");
  if (has_authority) path.remove_prefix(2);
  if (path.empty() || (has_authority && path.front() != '/')) {
    return Invalid("got '", std::string(address),
                   "', want unix:PATH or unix:///PATH");
  }
  if (path.size() > kMaxPathBytes) {
    return Invalid("got '", std::string(address), "', a path of ", path.size(),
                   " bytes, want at most ", kMaxPathBytes);
  }
  return std::string(path);
}

absl::StatusOr<std::unique_ptr<SocketFile>> SocketFile::Bind(
    int fd, const std::string& path, mode_t mode) {
  const std::filesystem::path folder =
      std::filesystem::path(path).parent_path();
  std::error_code unknown;
  if (!folder.empty() && !std::filesystem::is_directory(folder, unknown)) {
    return absl::UnavailableError(
        absl::StrCat("there is no folder '", folder.string(), "'"));
  }
  ATTNBIAS_RETURN_IF_ERROR(RemoveStale(path));
  const sockaddr_un address = AddressOf(path);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) !=
      0) {
    return Failed(errno);
  }
  std::unique_ptr<SocketFile> file(new SocketFile(path));
  // Nobody can connect before the socket listens.
  if (chmod(path.c_str(), mode) != 0) return Failed(errno);
  return file;
}

SocketFile::SocketFile(const std::string& path)
    : path_(std::filesystem::absolute(path)) {
  struct stat status = {};
  if (lstat(path_.c_str(), &status) != 0) return;
  made_ = status;
}

SocketFile::~SocketFile() {
  struct stat status = {};
  if (lstat(path_.c_str(), &status) == 0 && IsSame(status, made_)) {
    unlink(path_.c_str());
  }
}

}  // namespace attnbias
