// SPDX-License-Identifier: Apache-2.0
#include "server/run/metrics_port.h"

#include <microhttpd.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "server/run/transport.h"

namespace attnbias {
namespace {

constexpr char kTextFormat[] = "text/plain; version=0.0.4; charset=utf-8";
constexpr unsigned kMaxConnections = 32;
// Bounds a connection's request and the headers of its response.
constexpr size_t kConnectionBytes = 16 << 10;
// Time after which an idle connection is closed.
constexpr unsigned kIdleSeconds = 5;

MHD_Result Answer(void* port, MHD_Connection* connection, const char* url, const char* method,
                  const char* /*version*/, const char* /*body*/, size_t* /*body_size*/,
                  void** /*request*/) {
  const bool get = method == std::string_view(MHD_HTTP_METHOD_GET) ||
                   method == std::string_view(MHD_HTTP_METHOD_HEAD);
  const HttpPages& pages = static_cast<const MetricsPort*>(port)->pages();
  const auto found = pages.find(std::string_view(url));
  HttpPage page = {.status = MHD_HTTP_NOT_FOUND};
  if (found != pages.end()) {
    page = get ? found->second() : HttpPage{.status = MHD_HTTP_METHOD_NOT_ALLOWED};
  }
  MHD_Response* const response =
      MHD_create_response_from_buffer(page.text.size(), page.text.data(), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, kTextFormat);
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
  const MHD_Result result = MHD_queue_response(connection, page.status, response);
  MHD_destroy_response(response);
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsPort>> MetricsPort::Listen(const std::string& address,
                                                                 const HttpPages& pages) {
  const auto failed = [&address](absl::string_view why) {
    return absl::UnavailableError(absl::StrCat("cannot serve metrics on ", address, ": ", why));
  };
  ATTNBIAS_ASSIGN_OR_RETURN(ListenAddress parsed, ParseHostPort(address));
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (parsed.host.empty()) parsed.host = "::";
  if (const int error =
          getaddrinfo(parsed.host.c_str(), std::to_string(parsed.port).c_str(), &hints, &found);
      error != 0) {
    return failed(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> resolved(found, &freeaddrinfo);
  std::unique_ptr<MetricsPort> port(new MetricsPort(pages));
  for (const addrinfo* at = found; at != nullptr && port->daemon_ == nullptr; at = at->ai_next) {
    // Makes [::] also serve IPv4.
    const unsigned family = at->ai_family == AF_INET6 ? MHD_USE_DUAL_STACK : 0;
    port->daemon_ =
        MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | family, 0, nullptr, nullptr, &Answer,
                         port.get(), MHD_OPTION_SOCK_ADDR, at->ai_addr, MHD_OPTION_CONNECTION_LIMIT,
                         kMaxConnections, MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytes,
                         MHD_OPTION_CONNECTION_TIMEOUT, kIdleSeconds, MHD_OPTION_END);
  }
  if (port->daemon_ == nullptr && parsed.host == "::") {
    // The machine has no IPv6.
    parsed.host = "0.0.0.0";
    return Listen(ToString(parsed), pages);
  }
  if (port->daemon_ == nullptr) return failed(std::strerror(errno));
  parsed.port = MHD_get_daemon_info(port->daemon_, MHD_DAEMON_INFO_BIND_PORT)->port;
  port->address_ = ToString(parsed);
  return port;
}

MetricsPort::~MetricsPort() {
  if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
}

}  // namespace attnbias
