// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/call_group.h"

namespace attnbias {

void CallGroup::Add(grpc::ClientContext* context) {
  const std::lock_guard lock(mutex_);
  contexts_.insert(context);
  if (!status_.ok()) context->TryCancel();
}

void CallGroup::Remove(grpc::ClientContext* context) {
  const std::lock_guard lock(mutex_);
  contexts_.erase(context);
}

void CallGroup::Fail(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  if (!status_.ok()) return;
  status_ = status;
  for (grpc::ClientContext* context : contexts_) context->TryCancel();
}

absl::Status CallGroup::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void CallGroup::Tell(absl::FunctionRef<void()> callback) {
  const std::lock_guard lock(telling_);
  callback();
}

}  // namespace attnbias
