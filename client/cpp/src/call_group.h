// SPDX-License-Identifier: Apache-2.0
// The calls of one download, in several threads, which end together.
#pragma once

#include <grpcpp/client_context.h>

#include <mutex>
#include <set>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace attnbias {

// For any thread.
class CallGroup {
 public:
  // Has Fail end the call that begins with this context; at once, where it came
  // before.
  void Add(grpc::ClientContext* context);
  // Before the context is gone.
  void Remove(grpc::ClientContext* context);

  // Ends all calls, and those that would still begin. The first status counts.
  void Fail(const absl::Status& status);

  // OK while none has failed.
  absl::Status status() const;

  // Calls back into the program: one at a time.
  void Tell(absl::FunctionRef<void()> callback);

 private:
  mutable std::mutex mutex_;
  std::set<grpc::ClientContext*> contexts_;
  absl::Status status_;
  std::mutex telling_;
};

}  // namespace attnbias
