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

class HttpListener final : public MetricsListener {
 public:
  HttpListener(const HostPort& address, std::function<std::string()> text)
      : address_(address) {
    if (address_.host.empty()) address_.host = "0.0.0.0";
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

  ~HttpListener() override {
    stopping_ = true;
    // A server that does not run yet cannot be stopped.
    while (serving_ && !server_.is_running()) {
      std::this_thread::sleep_for(kPatience);
    }
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }

  int port() const override { return address_.port; }

  // False when the port cannot be had.
  bool Bind() {
    if (address_.port != 0) {
      return server_.bind_to_port(address_.host, address_.port);
    }
    const int port = server_.bind_to_any_port(address_.host);
    if (port > 0) address_.port = static_cast<uint16_t>(port);
    return port > 0;
  }

  // On the port that was bound. The library stops listening when accept finds
  // no free descriptor or memory; then the port is taken again.
  void Serve() {
    serving_ = true;
    thread_ = std::thread([this] {
      server_.listen_after_bind();
      while (!stopping_) {
        std::this_thread::sleep_for(kPatience);
        if (Bind()) server_.listen_after_bind();
      }
      serving_ = false;
    });
  }

 private:
  HostPort address_;
  httplib::Server server_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> serving_{false};
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsListener>> MetricsListener::Listen(
    const HostPort& address, std::function<std::string()> text) {
  auto listener = std::make_unique<HttpListener>(address, std::move(text));
  if (!listener->Bind()) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", ToString(address)));
  }
  listener->Serve();
  return listener;
}

}  // namespace attnbias
