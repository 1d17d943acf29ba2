// SPDX-License-Identifier: Apache-2.0
#include "server/metrics_listener.h"

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "httplib.h"

namespace attnbias {
namespace {

constexpr char kTextFormat[] = "text/plain; version=0.0.4; charset=utf-8";
// Requests at once: a few scrapers.
constexpr size_t kThreads = 4;
constexpr std::chrono::seconds kTimeout{5};
// Of a request: there is no need for a body.
constexpr size_t kMaxBodyBytes = 1 << 10;
// Between two attempts to take the port, or to stop.
constexpr std::chrono::milliseconds kPatience{10};

}  // namespace

class MetricsListener::Http {
 public:
  explicit Http(std::function<std::string()> text) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server_.set_read_timeout(kTimeout);
    server_.set_write_timeout(kTimeout);
    server_.set_payload_max_length(kMaxBodyBytes);
    // The library's own SO_REUSEPORT would share a port that another process
    // listens on.
    server_.set_socket_options([](int socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    server_.Get("/metrics",
                [text = std::move(text)](const httplib::Request& /*request*/,
                                         httplib::Response& response) {
                  response.set_content(text(), kTextFormat);
                });
  }

  ~Http() {
    stopping_ = true;
    // A server that does not run yet cannot be stopped.
    while (serving_ && !server_.is_running()) {
      std::this_thread::sleep_for(kPatience);
    }
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }

  // The port, or a negative number.
  int Bind(const HostPort& address) {
    const std::string host = address.host.empty() ? "0.0.0.0" : address.host;
    if (address.port == 0) return server_.bind_to_any_port(host);
    return server_.bind_to_port(host, address.port) ? address.port : -1;
  }

  // On the port that was bound. The library stops listening when accept finds
  // no free descriptor or memory; then the port is taken again.
  void Serve(const HostPort& bound) {
    serving_ = true;
    thread_ = std::thread([this, bound] {
      server_.listen_after_bind();
      while (!stopping_) {
        std::this_thread::sleep_for(kPatience);
        if (Bind(bound) >= 0) server_.listen_after_bind();
      }
      serving_ = false;
    });
  }

 private:
  httplib::Server server_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> serving_{false};
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<MetricsListener>> MetricsListener::Listen(
    const HostPort& address, std::function<std::string()> text) {
  auto http = std::make_unique<Http>(std::move(text));
  const int port = http->Bind(address);
  if (port < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", ToString(address)));
  }
  http->Serve({address.host, static_cast<uint16_t>(port)});
  return std::unique_ptr<MetricsListener>(
      new MetricsListener(std::move(http), port));
}

MetricsListener::MetricsListener(std::unique_ptr<Http> http, int port)
    : http_(std::move(http)), port_(port) {}

MetricsListener::~MetricsListener() = default;

}  // namespace attnbias
