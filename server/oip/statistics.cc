// SPDX-License-Identifier: Apache-2.0
#include "server/oip/statistics.h"

namespace attnbias {

InferenceStatistics::InferenceStatistics() {
  for (const Model& model : Model::All()) {
    inference::ModelStatistics& statistics = models_.emplace_back();
    statistics.set_name(model.name());
    statistics.set_version(kModelVersion);
    statistics.mutable_inference_stats()->mutable_success();
    statistics.mutable_inference_stats()->mutable_fail();
  }
}

void InferenceStatistics::Add(const Model& model, bool success,
                              std::chrono::nanoseconds duration) {
  MutexLock lock(mutex_);
  inference::ModelStatistics& statistics = models_[model.index()];
  inference::InferStatistics& all = *statistics.mutable_inference_stats();
  inference::StatisticDuration& kind =
      success ? *all.mutable_success() : *all.mutable_fail();
  kind.set_count(kind.count() + 1);
  kind.set_ns(kind.ns() + duration.count());
  if (!success) return;
  statistics.set_inference_count(statistics.inference_count() + 1);
  statistics.set_execution_count(statistics.execution_count() + 1);
  statistics.set_last_inference(
      std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::system_clock::now().time_since_epoch())
          .count());
}

inference::ModelStatistics InferenceStatistics::Of(const Model& model) const {
  MutexLock lock(mutex_);
  return models_[model.index()];
}

}  // namespace attnbias
