// SPDX-License-Identifier: Apache-2.0
// Serves pages over HTTP: metrics, health and version. Does not use prometheus-cpp's Exposer, whose
// thread stacks are too small next to OpenBLAS's thread-local memory.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

struct MHD_Daemon;

namespace attnbias {

// A response to GET. `status` is an HTTP status.
struct HttpPage {
  unsigned status = 200;
  std::string text;
};

// Pages by path, such as "/metrics".
using HttpPages = std::map<std::string, std::function<HttpPage()>, std::less<>>;

// Serves during its lifetime; its destructor waits for requests in progress.
class MetricsPort {
 public:
  // Calls the functions of `pages` from one thread. Returns UNAVAILABLE, naming the address, if the
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
