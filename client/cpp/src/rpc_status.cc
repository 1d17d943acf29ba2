// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/rpc_status.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "attnbias/error.h"
#include "attnbias/internal/printable.h"
#include "attnbias/internal/rpc.pb.h"
#include "client/cpp/src/channel.h"
#include "client/cpp/src/target.h"

namespace attnbias {
namespace {

// Any method works, since the call only needs a connection.
constexpr char kMethod[] = "/grpc.health.v1.Health/Check";
constexpr auto kPatience = absl::Milliseconds(1500);
constexpr size_t kMostAddresses = 8;

// Phrases in gRPC's reports of failed connections, and their meanings.
constexpr char kOtherPort[] = "answers, but does not speak gRPC: is this the right port?";
constexpr char kNotFound[] = "cannot be resolved: is the name right?";
constexpr std::pair<const char*, const char*> kReasons[] = {
    {"DNS resolution failed", kNotFound},
    {"errors resolving", kNotFound},
    {"wrong version number", "answers, but not over TLS: leave out tls"},
    {"certificate verify failed",
     "has a certificate that is not trusted here, or has expired: set "
     "tls.ca_file to its CA's certificate"},
    {"Hostname Verification",
     "has a certificate for another name: connect using one of its names, or set "
     "tls.server_name to one"},
    {"http1.x server", kOtherPort},
    {"Failed parsing HTTP/2", kOtherPort},
};

// Describes how the client connected, and what the server may require instead.
std::string HowSpokenTo(const TlsOptions& tls) {
  if (!tls.enabled) {
    return "in plaintext: does it need TLS? Set tls";
  }
  if (!tls.cert_file.empty()) {
    return absl::StrCat(
        "over TLS: is it starting or stopping, or does it not trust the "
        "certificate in ",
        tls.cert_file, "?");
  }
  return "over TLS: is it starting or stopping, or does it require a certificate? "
         "Set tls.cert_file and tls.key_file";
}

// Explains a report. Returns nullopt if no server answers.
std::optional<std::string> Meaning(absl::string_view report, const ClientOptions& options) {
  for (const auto& [sign, why] : kReasons) {
    if (absl::StrContains(report, sign)) {
      return absl::StrCat(options.target, " ", why);
    }
  }
  for (const char* sign : {"Socket closed", "reset by peer", "handshake"}) {
    if (absl::StrContains(report, sign)) {
      return absl::StrCat(options.target, " answers, but does not speak gRPC ",
                          HowSpokenTo(*options.tls));
    }
  }
  return std::nullopt;
}

// Splits "host:port" or "[host]:port".
std::pair<std::string, std::string> Split(const std::string& place) {
  const size_t colon = place.rfind(':');
  std::string host = place.substr(0, colon);
  if (absl::StartsWith(host, "[")) host = host.substr(1, host.size() - 2);
  return {std::move(host), place.substr(colon + 1)};
}

// Returns the hosts' distinct addresses, as gRPC targets.
std::vector<std::string> Resolve(const std::vector<std::string>& hosts) {
  std::vector<std::string> addresses;
  for (const std::string& place : hosts) {
    const auto [host, port] = Split(place);
    if (host == "localhost") {  // gRPC uses both, whatever /etc/hosts contains
      addresses.push_back(absl::StrCat("ipv6:[::1]:", port));
      addresses.push_back(absl::StrCat("ipv4:127.0.0.1:", port));
      continue;
    }
    const addrinfo hints = {
        .ai_flags = AI_NUMERICSERV, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    addrinfo* found = nullptr;
    if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) continue;
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
      char text[NI_MAXHOST];
      if (getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof(text), nullptr, 0,
                      NI_NUMERICHOST) != 0) {
        continue;
      }
      std::string address = at->ai_family == AF_INET6 ? absl::StrCat("ipv6:[", text, "]:", port)
                                                      : absl::StrCat("ipv4:", text, ":", port);
      if (absl::c_linear_search(addresses, address)) continue;
      addresses.push_back(std::move(address));
    }
    freeaddrinfo(found);
  }
  if (addresses.size() > kMostAddresses) addresses.resize(kMostAddresses);
  return addresses;
}

// Resolves the target's hosts within kPatience; returns none if that takes longer.
std::vector<std::string> AddressesOf(const std::string& target) {
  auto resolve = std::make_shared<std::packaged_task<std::vector<std::string>()>>(
      [hosts = HostsOf(target)] { return Resolve(hosts); });
  std::future<std::vector<std::string>> addresses = resolve->get_future();
  std::thread([resolve] { (*resolve)(); }).detach();
  if (addresses.wait_for(absl::ToChronoNanoseconds(kPatience)) != std::future_status::ready) {
    return {};
  }
  return addresses.get();
}

// Returns gRPC's report on one address; "" if there is a connection.
std::string ReportOn(const std::string& address, ClientOptions options) {
  const std::vector<std::string> hosts = HostsOf(options.target);
  // The certificate is for the name, not for the address.
  if (options.tls->enabled && options.tls->server_name.empty() && hosts.size() == 1) {
    options.tls->server_name = Split(hosts[0]).first;
  }
  options.target = address;
  const auto channel = MakeChannel(options);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  grpc::ByteBuffer answer;
  const grpc::Status status = CallUnary(channel, kMethod, grpc::ByteBuffer(), &context, &answer);
  if (IsUnreached(status)) return status.error_message();
  if (channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY) {
    return "";
  }
  return absl::StrCat("no response within ", absl::FormatDuration(kPatience));
}

// Returns the reason in "connections to all backends failing; last error: CODE: ADDRESS: REASON".
std::string ReasonIn(const std::string& report) {
  if (report.empty()) return "answers";
  const std::vector<std::string> parts = absl::StrSplit(report, absl::MaxSplits(": ", 3));
  return absl::StrReplaceAll(internal::Printable(parts.size() == 4 ? parts[3] : report),
                             {{";", ","}});
}

// Explains gRPC's report on the last address.
std::string WhyUnreached(absl::string_view report, const ClientOptions& options) {
  return Meaning(report, options)
      .value_or(absl::StrCat("nothing is answering at ", options.target,
                             ": is the server running? Start one with attnbias-server"));
}

constexpr char kDetailsUrl[] = "type.googleapis.com/google.rpc.Status";

// Returns the first detail whose google.rpc type has the same name as `Detail`.
template <typename Detail>
std::optional<Detail> FindDetail(const std::string& serialized) {
  internal::Status status;
  if (!status.ParseFromString(serialized)) return std::nullopt;
  const std::string type = absl::StrCat("/google.rpc.", Detail::descriptor()->name());
  for (const auto& any : status.details()) {
    Detail detail;
    if (absl::EndsWith(any.type_url(), type) && detail.ParseFromString(any.value())) {
      return detail;
    }
  }
  return std::nullopt;
}

// Returns the details that FromRpc kept; empty if there are none.
std::string DetailsOf(const absl::Status& status) {
  return std::string(status.GetPayload(kDetailsUrl).value_or(absl::Cord()));
}

// Returns advice for the status; empty if there is none.
std::string Advice(const grpc::Status& status, const ClientOptions& options, bool has_token) {
  const std::string& says = status.error_message();
  const std::string& target = options.target;
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return IsUnreached(status) ? WhyUnreached(says, options) : "";
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::StrCat("no complete response from ", target, " within the timeout of ",
                          absl::FormatDuration(options.timeout));
    case grpc::StatusCode::UNAUTHENTICATED:
      if (has_token) {
        return absl::StrCat(target,
                            " rejected this token: is it for this server, "
                            "and still valid?");
      }
      return absl::StrCat(target,
                          " requires authentication: set token_file, or "
                          "tls.cert_file and tls.key_file");
    case grpc::StatusCode::PERMISSION_DENIED:
      return absl::StrCat(target,
                          " denied permission: ask its operator, or use another token or "
                          "certificate");
    default:
      return "";
  }
}

}  // namespace

bool IsUnreached(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return false;
  for (const absl::string_view start :
       {"connections to all backends failing", "failed to connect to all addresses",
        "DNS resolution failed", "errors resolving"}) {
    if (absl::StartsWith(status.error_message(), start)) return true;
  }
  return false;
}

std::string WhyAllUnreached(absl::string_view report, const ClientOptions& options) {
  const std::vector<std::string> addresses = AddressesOf(options.target);
  if (addresses.size() < 2) {
    return absl::StrCat(WhyUnreached(report, options), " (", internal::Printable(report), ")");
  }
  std::vector<std::future<std::string>> reports;
  for (const std::string& address : addresses) {
    reports.push_back(std::async(std::launch::async, ReportOn, address, options));
  }
  std::optional<std::string> meaning;
  std::vector<std::string> reasons;
  for (size_t i = 0; i < addresses.size(); ++i) {
    const std::string each = reports[i].get();
    if (!meaning.has_value()) meaning = Meaning(each, options);
    // Without "ipv4:" or "ipv6:".
    reasons.push_back(absl::StrCat(addresses[i].substr(5), ": ", ReasonIn(each)));
  }
  if (!meaning.has_value()) meaning = WhyUnreached(report, options);
  return absl::StrCat(*meaning, " (", absl::StrJoin(reasons, "; "), ")");
}

absl::Status FromRpc(const grpc::Status& status, const ClientOptions& options, bool has_token) {
  std::string message = internal::Printable(status.error_message());
  const std::string advice = Advice(status, options, has_token);
  if (!advice.empty()) message = absl::StrCat(advice, " (", message, ")");
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), message);
  if (!result.ok() && !status.error_details().empty()) {
    result.SetPayload(kDetailsUrl, absl::Cord(status.error_details()));
  }
  return result;
}

std::optional<absl::Duration> RetryDelay(const grpc::Status& status) {
  const auto info = FindDetail<internal::RetryInfo>(status.error_details());
  if (!info.has_value()) return std::nullopt;
  return absl::Seconds(info->retry_delay().seconds()) +
         absl::Nanoseconds(info->retry_delay().nanos());
}

std::string Reason(const absl::Status& status) {
  const auto info = FindDetail<internal::ErrorInfo>(DetailsOf(status));
  return info.has_value() ? internal::Printable(info->reason()) : "";
}

std::string RequestId(const absl::Status& status) {
  const auto info = FindDetail<internal::RequestInfo>(DetailsOf(status));
  return info.has_value() ? internal::Printable(info->request_id()) : "";
}

std::vector<FieldViolation> FieldViolations(const absl::Status& status) {
  std::vector<FieldViolation> violations;
  const auto bad = FindDetail<internal::BadRequest>(DetailsOf(status));
  if (!bad.has_value()) return violations;
  for (const auto& violation : bad->field_violations()) {
    violations.push_back(
        {internal::Printable(violation.field()), internal::Printable(violation.description())});
  }
  return violations;
}

}  // namespace attnbias
