// SPDX-License-Identifier: Apache-2.0
#include "server/metrics_listener.h"

#include <microhttpd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "server/listening_socket.h"
#include "server/periodic_task.h"

namespace attnbias {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kTextFormat[] = "text/plain; version=0.0.4; charset=utf-8";
constexpr unsigned kMaxConnections = 32;
// Of one, for what its request and our answer's headers take.
constexpr size_t kConnectionBytes = 16 << 10;
// For a whole request. The library's own limit begins anew with every byte.
constexpr std::chrono::seconds kTimeout{5};
constexpr std::chrono::milliseconds kTimeoutCheck{500};

class HttpListener final : public MetricsListener {
 public:
  HttpListener(std::string address, std::function<std::string()> text)
      : address_(std::move(address)),
        text_(std::move(text)),
        cut_overdue_(kTimeoutCheck, [this] { CutOverdue(); }) {}

  ~HttpListener() override {
    if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
  }

  const std::string& address() const override { return address_; }

  // Takes the socket. False where there is no memory or thread.
  bool Serve(int fd) {
    daemon_ = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD, 0, nullptr, nullptr, &Answer, this,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
        kMaxConnections, MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytes,
        MHD_OPTION_NOTIFY_CONNECTION, &Notify, this, MHD_OPTION_END);
    if (daemon_ == nullptr) close(fd);
    return daemon_ != nullptr;
  }

 private:
  static MHD_Result Answer(void* self, MHD_Connection* connection,
                           const char* url, const char* method,
                           const char* /*version*/, const char* /*body*/,
                           size_t* /*body_size*/, void** /*request*/) {
    const bool get = method == std::string_view(MHD_HTTP_METHOD_GET) ||
                     method == std::string_view(MHD_HTTP_METHOD_HEAD);
    const bool known = url == std::string_view("/metrics");
    std::string text;
    if (known && get) text = static_cast<HttpListener*>(self)->text_();
    MHD_Response* const response = MHD_create_response_from_buffer(
        text.size(), text.data(), MHD_RESPMEM_MUST_COPY);
    if (response == nullptr) return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                            kTextFormat);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    const unsigned status = !known ? MHD_HTTP_NOT_FOUND
                            : !get ? MHD_HTTP_METHOD_NOT_ALLOWED
                                   : MHD_HTTP_OK;
    const MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
  }

  // Of a connection that begins, or is about to be closed.
  static void Notify(void* self, MHD_Connection* connection, void** /*context*/,
                     MHD_ConnectionNotificationCode code) {
    const int fd =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)
            ->connect_fd;
    auto& listener = *static_cast<HttpListener*>(self);
    MutexLock lock(listener.mutex_);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
      listener.begun_.emplace(fd, Clock::now());
    } else {
      listener.begun_.erase(fd);
    }
  }

  void CutOverdue() {
    MutexLock lock(mutex_);
    for (const auto& [fd, begun] : begun_) {
      if (Clock::now() - begun > kTimeout) shutdown(fd, SHUT_RDWR);
    }
  }

  const std::string address_;
  const std::function<std::string()> text_;
  MHD_Daemon* daemon_ = nullptr;
  Mutex mutex_;
  std::map<int, Clock::time_point> begun_ ABSL_GUARDED_BY(mutex_);
  PeriodicTask cut_overdue_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsListener>> MetricsListener::Listen(
    std::string_view address, std::function<std::string()> text) {
  absl::StatusOr<ListeningSocket> socket = ListeningSocket::Open(address);
  if (!socket.ok()) {
    return absl::UnavailableError(absl::StrCat("cannot serve metrics on ",
                                               std::string(address), ": ",
                                               socket.status().message()));
  }
  auto listener =
      std::make_unique<HttpListener>(socket->address(), std::move(text));
  if (!listener->Serve(socket->Release())) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", listener->address()));
  }
  return listener;
}

}  // namespace attnbias
