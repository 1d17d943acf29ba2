// SPDX-License-Identifier: Apache-2.0
#include "server/observe/health_service.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attnbias/v1/service.grpc.pb.h"
#include "core/base/errors.h"

namespace attnbias {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr size_t kMaxNameBytes = 256;

// A Watch call. Sends the newest status, each change at most once; one write in flight. The
// service's mutex guards its state.
class HealthService::Watcher final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  Watcher(HealthService* service, std::string name) : service_(*service), name_(std::move(name)) {}

  void OnWriteDone(bool ok) override {
    service_.mutex_.Lock();
    writing_ = false;
    if (!ok && !end_) end_ = grpc::Status::CANCELLED;
    service_.UnlockAndProceed({this});
  }
  void OnCancel() override {
    service_.mutex_.Lock();
    if (!end_) end_ = grpc::Status::CANCELLED;
    service_.UnlockAndProceed({this});
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

  enum class Step : uint8_t { kNone, kWrite, kFinish };

  // Returns the step to start without the lock, since gRPC may call back, with `response_` or
  // `end_`. gRPC keeps the watcher until the step is done.
  Step NextLocked(Status status) {
    if (writing_ || finishing_) return Step::kNone;
    if (status != sent_) {
      sent_ = status;
      writing_ = true;
      response_.set_status(status);
      return Step::kWrite;
    }
    finishing_ = end_.has_value();
    return finishing_ ? Step::kFinish : Step::kNone;
  }

  HealthService& service_;
  const std::string name_;
  // Being written.
  HealthCheckResponse response_;
  Status sent_ = HealthCheckResponse::UNKNOWN;
  bool writing_ = false;
  bool finishing_ = false;
  // Set once.
  std::optional<grpc::Status> end_;
};

void HealthService::SetServing(bool serving) {
  mutex_.Lock();
  serving_ = serving;
  UnlockAndProceed(watchers_);
}

void HealthService::FinishWatchers() {
  mutex_.Lock();
  finished_ = true;
  UnlockAndProceed(watchers_);
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

void HealthService::UnlockAndProceed(const std::set<Watcher*>& watchers) {
  std::vector<std::pair<Watcher*, Watcher::Step>> steps;
  for (Watcher* const watcher : watchers) {
    if (finished_ && !watcher->end_) {
      watcher->end_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is draining");
    }
    steps.emplace_back(
        watcher,
        watcher->NextLocked(
            StatusOfLocked(watcher->name_).value_or(HealthCheckResponse::SERVICE_UNKNOWN)));
  }
  mutex_.Unlock();
  for (const auto& [watcher, step] : steps) {
    if (step == Watcher::Step::kWrite) watcher->StartWrite(&watcher->response_);
    if (step == Watcher::Step::kFinish) watcher->Finish(*watcher->end_);
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
  mutex_.Lock();
  // gRPC keeps the request as long as the call lives.
  if (request->service().size() > kMaxNameBytes) {
    watcher->end_ = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                 absl::StrCat("service: got ", request->service().size(),
                                              " bytes, want at most ", kMaxNameBytes));
    // No status is sent.
    watcher->sent_ = HealthCheckResponse::SERVICE_UNKNOWN;
  }
  watchers_.insert(watcher);
  UnlockAndProceed({watcher});
  return watcher;
}

}  // namespace attnbias
