// SPDX-License-Identifier: Apache-2.0
// The channels of a client: the first, and spare ones for the ranges of large
// payloads.
#pragma once

#include <grpcpp/channel.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "attnbias/client.h"

namespace attnbias {

// For any thread. Each channel has connections of its own.
class Channels {
 public:
  // `options`, whose target and TLS are resolved, outlive this.
  explicit Channels(const ClientOptions& options) : options_(options) {}

  // The first one at 0. They are made when they are first asked for.
  std::shared_ptr<grpc::Channel> At(size_t index);

 private:
  const ClientOptions& options_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<grpc::Channel>> made_;
};

}  // namespace attnbias
