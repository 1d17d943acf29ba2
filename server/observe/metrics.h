// SPDX-License-Identifier: Apache-2.0
// What is counted, and its Prometheus names. Every label has a fixed set of values, all of which
// exist from the start.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/cache/band_cache.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "server/observe/phases.h"

namespace attnbias {

// The methods of AttentionBiasService, then those of GRPCInferenceService that are more than
// questions of health, in the order of their contracts.
enum class Method : uint8_t {
  kDescribeTensor,
  kGetTensor,
  kStreamTensor,
  kListTables,
  kComputeLogits,
  kGetServerInfo,
  kServerMetadata,
  kModelMetadata,
  kModelConfig,
  kModelStatistics,
  kRepositoryIndex,
  kModelInfer,
  kModelStreamInfer
};
inline constexpr int kNumMethods = 13;
std::string_view NameOf(Method method);
// Returns "PACKAGE.SERVICE/METHOD".
std::string PathOf(Method method);

// Why something was turned away that was not a mistake of the caller.
enum class Rejection : uint8_t {
  kOverload,
  kCallerLimit,
  kDraining,
  kStalledClient,
  kUnauthenticated,
  kPermissionDenied
};
inline constexpr int kNumRejections = 6;

// gRPC's, which are Abseil's.
inline constexpr int kNumStatusCodes = 17;

// Safe for any number of threads.
class Metrics final : public CacheObserver {
 public:
  Metrics();

  // Returns all of them, and those of the process, in Prometheus' text format. One thread may call
  // it.
  std::string Text() const;

  // A number that is asked for whenever the metrics are read. Before any Text.
  void AddGauge(const std::string& name, const std::string& help, std::function<double()> value);

  void CallStarted(Method method);
  void CallHandled(Method method, absl::StatusCode code, double seconds);
  void PhasesEnded(Method method, const PhaseTimes& phases);
  void MessageSent(Method method, int64_t bytes);
  void Rejected(Rejection reason);

  // Bytes of results that a CUDA device made.
  void MadeByCuda(int64_t bytes);
  void CudaFellBack() { cuda_fallbacks_->Increment(); }

  void OnHit() override { cache_hits_->Increment(); }
  void OnMiss() override { cache_misses_->Increment(); }
  void OnJoin() override { cache_joins_->Increment(); }
  void OnComputed(int64_t bytes) override;
  void OnEvicted() override { cache_evictions_->Increment(); }

 private:
  struct PerMethod {
    prometheus::Counter* started;
    prometheus::Counter* messages_sent;
    prometheus::Histogram* seconds;
    std::array<prometheus::Histogram*, kNumPhases> phases;
    std::array<prometheus::Counter*, kNumStatusCodes> handled;
  };

  prometheus::Family<prometheus::Counter>& AddCounters(const std::string& name,
                                                       const std::string& help);
  prometheus::Counter* AddCounter(const std::string& name, const std::string& help);
  void RegisterMethods();

  prometheus::Registry registry_;
  std::vector<std::pair<prometheus::Gauge*, std::function<double()>>> asked_gauges_;
  std::array<PerMethod, kNumMethods> methods_;
  std::array<prometheus::Counter*, kNumRejections> rejections_;
  prometheus::Counter* const stream_bytes_;
  prometheus::Counter* const cache_hits_;
  prometheus::Counter* const cache_misses_;
  prometheus::Counter* const cache_joins_;
  prometheus::Counter* const cache_evictions_;
  prometheus::Counter* const computations_;
  prometheus::Counter* const computed_bytes_;
  prometheus::Counter* const cuda_bytes_;
  prometheus::Counter* const cuda_fallbacks_;
  prometheus::Counter* const cpu_seconds_;
};

}  // namespace attnbias
