// SPDX-License-Identifier: Apache-2.0
// Implements grpc.health.v1.Health. Its watchers do not delay a shutdown.
//
// gRPC's own implementation leaves Watch streams open, which makes Server::Shutdown wait until its
// deadline.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "core/base/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace attnbias {

// Reports the status set by SetServing for "", the service's full name and "readiness". Reports
// SERVING for "liveness" until FinishWatchers is called.
class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;

  // Notifies the watchers of a change. May be called from any thread.
  void SetServing(bool serving);
  // Ends present and future Watch calls with UNAVAILABLE.
  void FinishWatchers();

  // Returns whether "readiness" is SERVING.
  bool ready() const;

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  class Watcher;

  // Returns nullopt for an unknown name.
  std::optional<Status> StatusOfLocked(const std::string& name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts a watcher's next step. gRPC invokes the callback later, on another thread.
  void ProceedLocked(Watcher& watcher) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Also guards the watchers' state.
  mutable Mutex mutex_;
  bool serving_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<Watcher*> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnbias
