// SPDX-License-Identifier: Apache-2.0
// Serves the metrics over HTTP at /metrics. The threads of prometheus-cpp's Exposer have stacks
// that are too small for OpenBLAS's thread-local memory.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

struct MHD_Daemon;

namespace attnbias {

// Serves until it is destroyed, which waits for requests under way.
class MetricsPort {
 public:
  // Calls `text`, on one thread, for the metrics in Prometheus' text format. Returns UNAVAILABLE,
  // naming the address, if the port cannot be bound.
  static absl::StatusOr<std::unique_ptr<MetricsPort>> Listen(
      const std::string& address, const std::function<std::string()>& text);

  MetricsPort(const MetricsPort&) = delete;
  MetricsPort& operator=(const MetricsPort&) = delete;
  ~MetricsPort();

  // Returns HOST:PORT with the port that was bound.
  const std::string& address() const { return address_; }
  std::string Text() const { return text_(); }

 private:
  explicit MetricsPort(const std::function<std::string()>& text) : text_(text) {}

  const std::function<std::string()> text_;
  std::string address_;
  MHD_Daemon* daemon_ = nullptr;
};

}  // namespace attnbias
