// SPDX-License-Identifier: Apache-2.0
// What ModelStatistics tells.
#ifndef ATTNBIAS_SERVER_OIP_STATISTICS_H_
#define ATTNBIAS_SERVER_OIP_STATISTICS_H_

#include <chrono>
#include <vector>

#include "core/base/mutex.h"
#include "inference/inference.pb.h"
#include "server/oip/model.h"

namespace attnbias {

// Safe for any number of threads.
class InferenceStatistics {
 public:
  InferenceStatistics();

  // One request that was answered, or not.
  void Add(const Model& model, bool success, std::chrono::nanoseconds duration);

  inference::ModelStatistics Of(const Model& model) const;

 private:
  mutable Mutex mutex_;
  // One for each model.
  std::vector<inference::ModelStatistics> models_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_OIP_STATISTICS_H_
