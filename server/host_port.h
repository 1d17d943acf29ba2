// SPDX-License-Identifier: Apache-2.0
// The addresses that flags take: HOST:PORT, [IPV6]:PORT or :PORT.
#ifndef ATTNBIAS_SERVER_HOST_PORT_H_
#define ATTNBIAS_SERVER_HOST_PORT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace attnbias {

struct HostPort {
  std::string host;  // without brackets; empty means every interface
  uint16_t port = 0;
};

// INVALID_ARGUMENT for anything else.
absl::StatusOr<HostPort> ParseHostPort(std::string_view text);

// HOST:PORT again, with brackets where the host needs them.
std::string ToString(const HostPort& address);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_HOST_PORT_H_
