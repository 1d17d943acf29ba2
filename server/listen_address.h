// SPDX-License-Identifier: Apache-2.0
// The addresses that flags take: HOST:PORT, [IPV6]:PORT, :PORT, unix:PATH.
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
  // Whether only this machine reaches it.
  bool is_local() const;
};

// INVALID_ARGUMENT for anything else.
absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text);
// The same, without unix:PATH.
absl::StatusOr<ListenAddress> ParseHostPort(std::string_view text);

// HOST:PORT, with brackets where the host needs them, or unix:PATH.
std::string ToString(const ListenAddress& address);

// UNAVAILABLE, saying why, where a server cannot make its socket at `path`.
// gRPC does not say why, and removes the socket of a server that listens there.
absl::Status CheckSocketFile(const std::string& path);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_LISTEN_ADDRESS_H_
