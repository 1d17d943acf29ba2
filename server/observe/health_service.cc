// SPDX-License-Identifier: Apache-2.0
#include "server/observe/health_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "attnbias/v1/service.grpc.pb.h"
#include "core/base/errors.h"

namespace attnbias {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr size_t kMaxNameBytes = 256;

// A Watch call. Sends the newest status, each change at most once, with at most one write in
// flight. The service's mutex guards this object's state.
class HealthService::Watcher final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  Watcher(HealthService* service, std::string name) : service_(*service), name_(std::move(name)) {}

  void OnWriteDone(bool /*ok*/) override {
    MutexLock lock(service_.mutex_);
    busy_ = false;
    service_.ProceedLocked(*this);
  }
  void OnCancel() override {
    MutexLock lock(service_.mutex_);
    end_ = grpc::Status::CANCELLED;
    service_.ProceedLocked(*this);
  }
  void OnDone() override {
    {
      MutexLock lock(service_.mutex_);
      service_.watchers_.erase(this);
    }
    delete this;
  }

 private:
  friend class HealthService;

  HealthService& service_;
  const std::string name_;
  // The last status sent; UNKNOWN before the first.
  HealthCheckResponse response_;
  // True during a write, and once the call has been finished.
  bool busy_ = false;
  std::optional<grpc::Status> end_;
};

void HealthService::SetServing(bool serving) {
  MutexLock lock(mutex_);
  serving_ = serving;
  for (Watcher* const watcher : watchers_) ProceedLocked(*watcher);
}

void HealthService::FinishWatchers() {
  MutexLock lock(mutex_);
  finished_ = true;
  for (Watcher* const watcher : watchers_) ProceedLocked(*watcher);
}

bool HealthService::ready() const {
  MutexLock lock(mutex_);
  return serving_;
}

std::optional<HealthService::Status> HealthService::StatusOfLocked(const std::string& name) const {
  bool healthy = false;
  if (name.empty() || name == "readiness" ||
      name == v1::AttentionBiasService::service_full_name()) {
    healthy = serving_;
  } else if (name == "liveness") {
    healthy = !finished_;
  } else {
    return std::nullopt;
  }
  return healthy ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

void HealthService::ProceedLocked(Watcher& watcher) {
  if (watcher.busy_) return;
  const Status status =
      StatusOfLocked(watcher.name_).value_or(HealthCheckResponse::SERVICE_UNKNOWN);
  if (finished_ && !watcher.end_) {
    watcher.end_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is draining");
  }
  if (status != watcher.response_.status()) {
    watcher.busy_ = true;
    watcher.response_.set_status(status);
    watcher.StartWrite(&watcher.response_);
  } else if (watcher.end_) {
    watcher.busy_ = true;
    watcher.Finish(*watcher.end_);
  }
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  std::optional<Status> status;
  {
    MutexLock lock(mutex_);
    status = StatusOfLocked(request->service());
  }
  if (status) {
    response->set_status(*status);
    reactor->Finish(grpc::Status::OK);
  } else {
    reactor->Finish(
        grpc::Status(grpc::StatusCode::NOT_FOUND,
                     absl::StrCat("service: got '", Shortened(request->service()), "', want '', '",
                                  v1::AttentionBiasService::service_full_name(),
                                  "', 'readiness' or 'liveness'")));
  }
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext* /*context*/, const HealthCheckRequest* request) {
  auto* const watcher = new Watcher(this, request->service());
  MutexLock lock(mutex_);
  // gRPC keeps the request in memory for the lifetime of the call.
  if (request->service().size() > kMaxNameBytes) {
    watcher->end_ = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                 absl::StrCat("service: got ", request->service().size(),
                                              " bytes, want at most ", kMaxNameBytes));
    // Counts as already sent, so that no status is sent before the error.
    watcher->response_.set_status(HealthCheckResponse::SERVICE_UNKNOWN);
  }
  watchers_.insert(watcher);
  ProceedLocked(*watcher);
  return watcher;
}

}  // namespace attnbias
