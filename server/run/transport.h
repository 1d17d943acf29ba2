// SPDX-License-Identifier: Apache-2.0
// This process's ports: configures and starts the gRPC servers, and serves pages over HTTP.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"

struct MHD_Daemon;

namespace attnbias {

// An address given to a flag: HOST:PORT, [IPV6]:PORT, :PORT or unix:PATH.
struct ListenAddress {
  // Without brackets; "::" for every interface, empty for a socket file.
  std::string host;
  uint16_t port = 0;
  std::string path;

  bool is_file() const { return host.empty(); }
  // Returns whether only clients on this machine can connect.
  bool is_local() const;
};

// Returns INVALID_ARGUMENT for any other text.
absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text);
// Accepts the same, except unix:PATH.
absl::StatusOr<ListenAddress> ParseHostPort(std::string_view text);

// Returns HOST:PORT, with brackets around an IPv6 host, or unix:PATH.
std::string ToString(const ListenAddress& address);

struct TransportOptions {
  // Concurrent calls on a connection.
  int max_concurrent_streams = 256;
  // Time after which a silent client is pinged, and time after which the connection is closed if
  // the ping is not answered.
  absl::Duration keepalive_time = absl::Seconds(60);
  absl::Duration keepalive_timeout = absl::Seconds(20);
  // Age, plus or minus 10%, after which a connection is closed once its calls have ended. Zero
  // means no limit.
  absl::Duration max_connection_age;
  // Mode of socket files.
  mode_t socket_mode = 0660;
  // True if clients may request descriptions of the services.
  bool reflection = true;
};

// Starts a server for `services` on `addresses`, and sets their ports to the bound ones. Limits the
// work that clients can cause and the memory that they can occupy. `credentials` do not apply to
// socket files. Returns UNAVAILABLE, naming the address, if an address cannot be bound.
absl::StatusOr<std::unique_ptr<grpc::Server>> ListenOn(
    std::vector<ListenAddress>& addresses, const TransportOptions& options,
    const std::shared_ptr<grpc::ServerCredentials>& credentials,
    const std::vector<grpc::Service*>& services);

// A response to GET. `status` is an HTTP status.
struct HttpPage {
  unsigned status = 200;
  std::string text;
};

// Pages by path, such as "/metrics".
using HttpPages = std::map<std::string, std::function<HttpPage()>, std::less<>>;

// Serves metrics, health and version over HTTP. Does not use prometheus-cpp's Exposer: the stacks
// of its threads are too small, because OpenBLAS's thread-local memory is taken from them.
//
// Serves during its lifetime; its destructor waits for requests in progress.
class MetricsPort {
 public:
  // Calls the functions in `pages` from one thread. Returns UNAVAILABLE, naming the address, if the
  // port cannot be bound.
  static absl::StatusOr<std::unique_ptr<MetricsPort>> Listen(const std::string& address,
                                                             const HttpPages& pages);

  MetricsPort(const MetricsPort&) = delete;
  MetricsPort& operator=(const MetricsPort&) = delete;
  ~MetricsPort();

  // Returns HOST:PORT with the bound port.
  const std::string& address() const { return address_; }
  const HttpPages& pages() const { return pages_; }

 private:
  explicit MetricsPort(const HttpPages& pages) : pages_(pages) {}

  const HttpPages pages_;
  std::string address_;
  MHD_Daemon* daemon_ = nullptr;
};

}  // namespace attnbias
