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

// It lives while it serves; its destructor waits for requests under way.
class MetricsListener {
 public:
  // `text` gives the metrics in Prometheus' text format; from any thread.
  // UNAVAILABLE for a port that cannot be had.
  static absl::StatusOr<std::unique_ptr<MetricsListener>> Listen(
      const HostPort& address, std::function<std::string()> text);

  virtual ~MetricsListener() = default;

  // Really taken.
  virtual int port() const = 0;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_METRICS_LISTENER_H_
