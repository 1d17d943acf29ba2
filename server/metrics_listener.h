// SPDX-License-Identifier: Apache-2.0
// Serves the metrics over HTTP, at /metrics and nowhere else.
#ifndef ATTNBIAS_SERVER_METRICS_LISTENER_H_
#define ATTNBIAS_SERVER_METRICS_LISTENER_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace attnbias {

// It lives while it serves; its destructor waits for requests under way.
//
// Whoever reaches the port cannot hold it: a connection is one request, with
// few headers and a few seconds for all of it. No body is read.
class MetricsListener {
 public:
  // `text` gives the metrics in Prometheus' text format; from one thread.
  // UNAVAILABLE for a port that cannot be had.
  static absl::StatusOr<std::unique_ptr<MetricsListener>> Listen(
      std::string_view address, std::function<std::string()> text);

  virtual ~MetricsListener() = default;

  // HOST:PORT with the port that was really taken.
  virtual const std::string& address() const = 0;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_METRICS_LISTENER_H_
