// SPDX-License-Identifier: Apache-2.0
// Addresses of flags: HOST:PORT, [IPV6]:PORT, :PORT, unix:PATH.
#ifndef ATTNBIAS_SERVER_LISTEN_ADDRESS_H_
#define ATTNBIAS_SERVER_LISTEN_ADDRESS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnbias {

struct ListenAddress {
  // Without brackets, "::" for every interface; empty for a socket file.
  std::string host;
  uint16_t port = 0;
  std::string path;

  bool is_file() const { return host.empty(); }
  // Returns whether only clients on this machine can connect.
  bool is_local() const;
};

// Returns INVALID_ARGUMENT for any other text.
absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text);
// Accepts the same, except unix:PATH.
absl::StatusOr<ListenAddress> ParseHostPort(std::string_view text);

// Returns HOST:PORT, with brackets around an IPv6 host, or unix:PATH.
std::string ToString(const ListenAddress& address);

// Returns UNAVAILABLE, with the reason, if a server cannot make its socket at
// `path`. gRPC gives no reason, and removes the socket of a running server.
absl::Status CheckSocketFile(const std::string& path);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_LISTEN_ADDRESS_H_
