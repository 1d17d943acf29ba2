// SPDX-License-Identifier: Apache-2.0
// A TCP port to accept connections on.
#ifndef ATTNBIAS_SERVER_LISTENING_SOCKET_H_
#define ATTNBIAS_SERVER_LISTENING_SOCKET_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace attnbias {

struct ListeningSocket {
  // Non-blocking; whoever has it closes it.
  int fd;
  // HOST:PORT with the port that was really taken.
  std::string address;
};

// UNAVAILABLE, naming the address, when that fails.
absl::StatusOr<ListeningSocket> ListenOn(std::string_view address);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_LISTENING_SOCKET_H_
