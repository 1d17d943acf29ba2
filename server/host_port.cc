// SPDX-License-Identifier: Apache-2.0
#include "server/host_port.h"

#include <charconv>

#include "absl/strings/str_cat.h"
#include "core/base/invalid.h"

namespace attnbias {
namespace {

absl::Status Malformed(std::string_view text) {
  return Invalid("got '", std::string(text),
                 "', want HOST:PORT with a port in [0, 65535]");
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Malformed(text);
  HostPort result;
  std::string_view host = text.substr(0, colon);
  const bool bracketed =
      host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!bracketed && host.find(':') != std::string_view::npos) {
    return Malformed(text);
  }
  result.host = std::string(host);
  const char* const end = text.data() + text.size();
  const auto [rest, error] =
      std::from_chars(text.data() + colon + 1, end, result.port);
  if (error != std::errc() || rest != end) return Malformed(text);
  return result;
}

std::string ToString(const HostPort& address) {
  const bool ipv6 = address.host.find(':') != std::string::npos;
  return ipv6 ? absl::StrCat("[", address.host, "]:", address.port)
              : absl::StrCat(address.host, ":", address.port);
}

}  // namespace attnbias
