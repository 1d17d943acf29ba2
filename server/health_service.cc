// SPDX-License-Identifier: Apache-2.0
#include "server/health_service.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attnbias/v1/service.grpc.pb.h"
#include "core/base/invalid.h"

namespace attnbias {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr size_t kMaxNameBytes = 256;

// One Watch. Sends the newest status it was told of, each change at most once;
// one write in flight. Finish is called exactly once, by whoever finds the
// watcher closed with no write under way.
class HealthService::Watcher final
    : public grpc::ServerWriteReactor<HealthCheckResponse>,
      public std::enable_shared_from_this<Watcher> {
 public:
  Watcher(HealthService* service, std::string name)
      : service_(service), name_(std::move(name)) {}

  const std::string& name() const { return name_; }

  void Tell(Status status) {
    mutex_.Lock();
    wanted_ = status;
    ProceedAndUnlock();
  }

  void Close(const grpc::Status& end) {
    mutex_.Lock();
    if (!end_) end_ = end;
    ProceedAndUnlock();
  }

  void OnWriteDone(bool ok) override {
    mutex_.Lock();
    writing_ = false;
    if (!ok && !end_) end_ = grpc::Status::CANCELLED;
    ProceedAndUnlock();
  }
  void OnCancel() override { Close(grpc::Status::CANCELLED); }
  void OnDone() override { service_->Forget(shared_from_this()); }

 private:
  // gRPC is called without the lock: it may call back.
  void ProceedAndUnlock() ABSL_UNLOCK_FUNCTION(mutex_) {
    const bool ready = !writing_ && !finishing_;
    const bool write = ready && wanted_ != sent_;
    const bool finish = ready && !write && end_;
    if (write) {
      sent_ = wanted_;
      writing_ = true;
      response_.set_status(wanted_);
    }
    if (finish) finishing_ = true;
    const grpc::Status end = end_.value_or(grpc::Status::OK);
    mutex_.Unlock();
    if (write) StartWrite(&response_);
    if (finish) Finish(end);
  }

  HealthService* const service_;
  const std::string name_;
  HealthCheckResponse response_;  // of the write under way

  Mutex mutex_;
  Status sent_ ABSL_GUARDED_BY(mutex_) = HealthCheckResponse::UNKNOWN;
  Status wanted_ ABSL_GUARDED_BY(mutex_) = HealthCheckResponse::UNKNOWN;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
};

void HealthService::SetServing(bool serving) {
  mutex_.Lock();
  const bool news = std::exchange(serving_, serving) != serving;
  UnlockAndTell(news ? watchers_ : Watchers());
}

void HealthService::FinishWatchers() {
  mutex_.Lock();
  finished_ = true;
  UnlockAndTell(watchers_);
}

bool HealthService::ready() const {
  MutexLock lock(mutex_);
  return serving_;
}

std::optional<HealthService::Status> HealthService::StatusOfLocked(
    const std::string& name) const {
  bool healthy = false;
  if (name.empty() || name == "readiness" ||
      name == v1::AttentionBiasService::service_full_name()) {
    healthy = serving_;
  } else if (name == "liveness") {
    healthy = !finished_;
  } else {
    return std::nullopt;
  }
  return healthy ? HealthCheckResponse::SERVING
                 : HealthCheckResponse::NOT_SERVING;
}

void HealthService::UnlockAndTell(Watchers watchers) {
  mutex_.Unlock();
  if (watchers.empty()) return;
  MutexLock tell_lock(tell_mutex_);
  std::vector<std::pair<std::shared_ptr<Watcher>, Status>> news;
  bool finished = false;
  {
    MutexLock lock(mutex_);
    finished = finished_;
    for (const std::shared_ptr<Watcher>& watcher : watchers) {
      news.emplace_back(watcher,
                        StatusOfLocked(watcher->name())
                            .value_or(HealthCheckResponse::SERVICE_UNKNOWN));
    }
  }
  for (auto& [watcher, status] : news) {
    watcher->Tell(status);
    if (finished) {
      watcher->Close(grpc::Status(grpc::StatusCode::UNAVAILABLE,
                                  "the server is draining"));
    }
  }
}

void HealthService::Forget(const std::shared_ptr<Watcher>& watcher) {
  MutexLock lock(mutex_);
  watchers_.erase(watcher);
}

grpc::ServerUnaryReactor* HealthService::Check(
    grpc::CallbackServerContext* context, const HealthCheckRequest* request,
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
    reactor->Finish(grpc::Status(
        grpc::StatusCode::NOT_FOUND,
        absl::StrCat("service: got '", Shortened(request->service()),
                     "', want '', '",
                     v1::AttentionBiasService::service_full_name(),
                     "', 'readiness' or 'liveness'")));
  }
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext* /*context*/,
    const HealthCheckRequest* request) {
  auto watcher = std::make_shared<Watcher>(this, request->service());
  // gRPC keeps the request as long as the call lives.
  if (request->service().size() > kMaxNameBytes) {
    watcher->Close(
        grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                     absl::StrCat("service: got ", request->service().size(),
                                  " bytes, want at most ", kMaxNameBytes)));
  }
  mutex_.Lock();
  watchers_.insert(watcher);
  UnlockAndTell({watcher});
  return watcher.get();
}

}  // namespace attnbias
