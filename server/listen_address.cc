// SPDX-License-Identifier: Apache-2.0
#include "server/listen_address.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"

namespace attnbias {
namespace {

constexpr std::string_view kUnix = "unix:";
// The last byte of sun_path is NUL.
constexpr size_t kMaxPathBytes = sizeof(sockaddr_un::sun_path) - 1;

absl::Status Malformed(std::string_view text) {
  return Invalid("got '", std::string(text),
                 "', want HOST:PORT with a port in [0, 65535]");
}

// unix:PATH or, as gRPC's clients may spell it, unix:///PATH.
absl::StatusOr<ListenAddress> ParseUnix(std::string_view text) {
  std::string_view path = text.substr(kUnix.size());
  const bool has_authority = path.starts_with("//");
  if (has_authority) path.remove_prefix(2);
  if (path.empty() || (has_authority && path.front() != '/')) {
    return Invalid("got '", std::string(text),
                   "', want unix:PATH or unix:///PATH");
  }
  if (path.size() > kMaxPathBytes) {
    return Invalid("got '", std::string(text), "', a path of ", path.size(),
                   " bytes, want at most ", kMaxPathBytes);
  }
  return ListenAddress{.path = std::string(path)};
}

// Returns 0 or the errno of connecting.
int Connect(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, kMaxPathBytes);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int error = connect(fd, reinterpret_cast<const sockaddr*>(&address),
                            sizeof(address)) == 0
                        ? 0
                        : errno;
  close(fd);
  return error;
}

}  // namespace

bool ListenAddress::is_local() const {
  return is_file() || host == "localhost" || host == "::1" ||
         host.starts_with("127.");
}

absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text) {
  return text.starts_with(kUnix) ? ParseUnix(text) : ParseHostPort(text);
}

absl::StatusOr<ListenAddress> ParseHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Malformed(text);
  std::string_view host = text.substr(0, colon);
  const bool bracketed =
      host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!bracketed && host.find(':') != std::string_view::npos) {
    return Malformed(text);
  }
  ListenAddress result = {.host = std::string(host.empty() ? "::" : host)};
  const char* const end = text.data() + text.size();
  const auto [rest, error] =
      std::from_chars(text.data() + colon + 1, end, result.port);
  if (error != std::errc() || rest != end) return Malformed(text);
  return result;
}

std::string ToString(const ListenAddress& address) {
  if (address.is_file()) return absl::StrCat("unix:", address.path);
  const bool ipv6 = address.host.find(':') != std::string::npos;
  return ipv6 ? absl::StrCat("[", address.host, "]:", address.port)
              : absl::StrCat(address.host, ":", address.port);
}

absl::Status CheckSocketFile(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  if (!folder.empty() && !fs::is_directory(folder, error)) {
    return absl::UnavailableError(
        absl::StrCat("there is no folder '", folder.string(), "'"));
  }
  const fs::file_status file = fs::symlink_status(path, error);
  if (!fs::exists(file)) return absl::OkStatus();
  if (!fs::is_socket(file)) {
    return absl::UnavailableError("there is a file that is not a socket");
  }
  switch (const int connected = Connect(path)) {
    case ECONNREFUSED:  // left behind by a server that has ended
      return absl::OkStatus();
    case 0:
    case EAGAIN:  // with a full queue
      return absl::UnavailableError("another server listens there");
    default:
      return absl::UnavailableError(std::strerror(connected));
  }
}

}  // namespace attnbias
