// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/target.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace attnbias {
namespace {

constexpr absl::string_view kPort = "50051";

// Returns true for IPv6 addresses, such as "::1" and "fe80::1%eth0".
bool IsIpv6(absl::string_view host) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(host, absl::MaxSplits('%', 1));
  in6_addr address = {};
  // inet_pton reads up to a NUL.
  return !absl::StrContains(parts.first, '\0') &&
         inet_pton(AF_INET6, parts.first.c_str(), &address) == 1 &&
         absl::c_all_of(parts.second, [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

bool IsName(absl::string_view host) {
  return !host.empty() && std::ranges::none_of(host, [](char c) {
    return c == '\0' || absl::ascii_isspace(c) || absl::StrContains(":/[],", c);
  });
}

bool IsPort(absl::string_view text) {
  int port = 0;
  return std::ranges::all_of(text, absl::ascii_isdigit) && absl::SimpleAtoi(text, &port) &&
         port > 0 && port <= 65535;
}

// Returns "host:50051" for "host"; nothing if `text` is not a host.
std::optional<std::string> WithPort(absl::string_view text) {
  if (IsIpv6(text)) return absl::StrCat("[", text, "]:", kPort);
  absl::string_view rest = text;
  bool is_host = false;
  if (absl::ConsumePrefix(&rest, "[")) {
    const size_t end = std::min(rest.find(']'), rest.size());
    is_host = IsIpv6(rest.substr(0, end)) && end < rest.size();
    rest.remove_prefix(is_host ? end + 1 : end);
  } else {
    const size_t end = std::min(rest.find(':'), rest.size());
    is_host = IsName(rest.substr(0, end));
    rest.remove_prefix(end);
  }
  if (!is_host) return std::nullopt;
  if (rest.empty()) return absl::StrCat(text, ":", kPort);
  if (!absl::ConsumePrefix(&rest, ":") || !IsPort(rest)) return std::nullopt;
  return std::string(text);
}

// Removes and returns the scheme before a list of hosts: "dns:", "dns://AUTHORITY/", "ipv4:".
absl::string_view TakeSchemeOfHosts(absl::string_view* target) {
  const absl::string_view whole = *target;
  if (absl::ConsumePrefix(target, "dns:")) {
    const size_t slash = target->find('/', 2);
    if (absl::StartsWith(*target, "//") && slash != target->npos) {
      target->remove_prefix(slash + 1);
    }
  } else if (absl::ConsumePrefix(target, "ipv4:") || absl::ConsumePrefix(target, "ipv6:")) {
    absl::ConsumePrefix(target, "///");
  }
  return whole.substr(0, whole.size() - target->size());
}

// Returns true for gRPC targets without a port, such as a socket file or an xDS service.
bool HasNoPort(absl::string_view target) {
  for (const absl::string_view scheme : {"unix:", "unix-abstract:", "vsock:"}) {
    if (absl::ConsumePrefix(&target, scheme)) return !target.empty();
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(target, absl::MaxSplits("://", 1));
  return parts.size() == 2 && !parts[1].empty() && IsName(parts[0]) && parts[0] != "http" &&
         parts[0] != "https";
}

// Returns true if "host:port" or "[IPv6]:port" is a loopback address.
bool IsLoopback(absl::string_view host_and_port) {
  std::string host(host_and_port.substr(0, host_and_port.rfind(':')));
  if (host == "localhost") return true;
  in_addr v4 = {};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    return ntohl(v4.s_addr) >> 24 == 127;
  }
  if (!absl::StartsWith(host, "[")) return false;
  host = host.substr(1, host.size() - 2);
  in6_addr v6 = {};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace

absl::StatusOr<std::string> TargetFrom(absl::string_view target) {
  absl::string_view rest = target;
  const absl::string_view scheme = TakeSchemeOfHosts(&rest);
  if (scheme.empty() && HasNoPort(target)) return std::string(target);
  std::vector<absl::string_view> given = {rest};
  if (absl::StartsWith(scheme, "ip")) given = absl::StrSplit(rest, ',');
  std::vector<std::string> hosts;
  for (const absl::string_view host : given) {
    const std::optional<std::string> with_port = WithPort(host);
    if (!with_port.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("target: got \"", target,
                       "\", want host, host:port, [IPv6]:port, unix:/path or another "
                       "gRPC target"));
    }
    hosts.push_back(*with_port);
  }
  return absl::StrCat(scheme, absl::StrJoin(hosts, ","));
}

std::vector<std::string> HostsOf(absl::string_view target) {
  absl::string_view rest = target;
  const absl::string_view scheme = TakeSchemeOfHosts(&rest);
  const bool has_own_resolver = absl::StartsWith(scheme, "dns://") && scheme != "dns:///";
  if (has_own_resolver || (scheme.empty() && HasNoPort(target))) return {};
  return absl::StrSplit(rest, ',');
}

bool IsOnThisMachine(absl::string_view target) {
  for (const absl::string_view scheme : {"unix:", "unix-abstract:"}) {
    if (absl::StartsWith(target, scheme)) return true;
  }
  const std::vector<std::string> hosts = HostsOf(target);
  return !hosts.empty() && absl::c_all_of(hosts, IsLoopback);
}

}  // namespace attnbias
