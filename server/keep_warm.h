// SPDX-License-Identifier: Apache-2.0
// Keeps gRPC's callback threads awake.
//
// After about a second without work a callback thread of gRPC 1.51 sleeps for
// 100 ms, and a lone request then waits tens of milliseconds. A call of the
// server to itself every 400 ms, 1.5 ms of CPU a second, takes that away.
#ifndef ATTNBIAS_SERVER_KEEP_WARM_H_
#define ATTNBIAS_SERVER_KEEP_WARM_H_

#include <memory>

#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/server.h"
#include "server/periodic_task.h"

namespace attnbias {

// `server` offers the health service, and outlives this object.
class KeepWarm {
 public:
  explicit KeepWarm(grpc::Server* server);

 private:
  void Call();

  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
  PeriodicTask task_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_KEEP_WARM_H_
