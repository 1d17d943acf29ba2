// SPDX-License-Identifier: Apache-2.0
// Serves the metrics over HTTP, at /metrics and nowhere else.
#ifndef ATTNBIAS_SERVER_METRICS_LISTENER_H_
#define ATTNBIAS_SERVER_METRICS_LISTENER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/host_port.h"

namespace attnbias {

class MetricsListener {
 public:
  // `text` gives the metrics in Prometheus' text format; from any thread.
  // UNAVAILABLE for a port that cannot be had.
  static absl::StatusOr<std::unique_ptr<MetricsListener>> Listen(
      const HostPort& address, std::function<std::string()> text);

  MetricsListener(const MetricsListener&) = delete;
  MetricsListener& operator=(const MetricsListener&) = delete;
  // Waits for requests under way.
  ~MetricsListener();

  // Really taken.
  int port() const { return port_; }

 private:
  class Http;

  MetricsListener(std::unique_ptr<Http> http, int port);

  const std::unique_ptr<Http> http_;
  const int port_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_METRICS_LISTENER_H_
