// SPDX-License-Identifier: Apache-2.0
// Counters and their Prometheus names. Every label has a fixed set of values, all of which exist
// from the start.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
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

// The methods of AttentionBiasService, followed by those of GRPCInferenceService except its three
// health methods, each service in its contract's order.
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

// A reason for rejecting a call, other than an error in its request.
enum class Rejection : uint8_t {
  kOverload,
  kCallerLimit,
  kDraining,
  kStalledClient,
  kUnauthenticated,
  kPermissionDenied
};
inline constexpr std::array<std::string_view, 6> kRejectionNames = {
    "overload",       "caller_limit",    "draining",
    "stalled_client", "unauthenticated", "permission_denied"};

// Number of gRPC status codes, which are the same as Abseil's.
inline constexpr int kNumStatusCodes = 17;

// Thread-safe.
class Metrics final : public CacheObserver {
 public:
  Metrics();

  // Returns these metrics and the process metrics in the Prometheus text format. Must always be
  // called from the same thread.
  std::string Text() const;

  // Adds a gauge, which Text reads by calling `value`. Must be called before Text.
  void AddGauge(const std::string& name, const std::string& help, std::function<double()> value);

  void CallStarted(Method method) { methods_[static_cast<int>(method)].started->Increment(); }
  void CallHandled(Method method, absl::StatusCode code, std::chrono::nanoseconds time,
                   const PhaseTimes& phases);
  // Counts a message and the tensor bytes in it.
  void MessageSent(Method method, int64_t bytes);
  void Rejected(Rejection reason) { rejections_[static_cast<int>(reason)]->Increment(); }

  void MadeByCuda(int64_t bytes) { cuda_bytes_->Increment(static_cast<double>(bytes)); }
  void CudaFellBack() { cuda_fallbacks_->Increment(); }

  void OnHit() override { cache_hits_->Increment(); }
  void OnMiss() override { cache_misses_->Increment(); }
  void OnJoin() override { cache_joins_->Increment(); }
  void OnComputed(int64_t bytes) override {
    computations_->Increment();
    computed_bytes_->Increment(static_cast<double>(bytes));
  }
  void OnEvicted() override { cache_evictions_->Increment(); }

 private:
  struct PerMethod {
    prometheus::Counter* started;
    prometheus::Counter* messages_sent;
    prometheus::Histogram* seconds;
    std::array<prometheus::Histogram*, kNumPhases> phases;
    std::array<prometheus::Counter*, kNumStatusCodes> handled;
  };

  prometheus::Family<prometheus::Counter>& AddCounters(const char* name, const char* help);
  prometheus::Counter* AddCounter(const char* name, const char* help) {
    return &AddCounters(name, help).Add({});
  }
  void RegisterMethods();

  prometheus::Registry registry_;
  std::vector<std::pair<prometheus::Gauge*, std::function<double()>>> asked_gauges_;
  std::array<PerMethod, kNumMethods> methods_;
  std::vector<prometheus::Counter*> rejections_;
  prometheus::Counter* const stream_bytes_ =
      AddCounter("attnbias_stream_bytes_total", "Bytes of tensors sent by StreamTensor");
  prometheus::Counter* const cache_hits_ =
      AddCounter("attnbias_cache_hits_total", "Requests served from the cache");
  prometheus::Counter* const cache_misses_ =
      AddCounter("attnbias_cache_misses_total", "Requests that started a computation");
  prometheus::Counter* const cache_joins_ =
      AddCounter("attnbias_cache_joins_total", "Requests that joined a computation in flight");
  prometheus::Counter* const cache_evictions_ =
      AddCounter("attnbias_cache_evictions_total", "Entries evicted");
  prometheus::Counter* const computations_ =
      AddCounter("attnbias_computations_total", "Computations finished");
  prometheus::Counter* const computed_bytes_ =
      AddCounter("attnbias_computed_bytes_total", "Bytes computed");
  prometheus::Counter* const cuda_bytes_ =
      AddCounter("attnbias_cuda_bytes_total", "Bytes of results computed by a CUDA device");
  prometheus::Counter* const cuda_fallbacks_ =
      AddCounter("attnbias_cuda_fallbacks_total",
                 "Fallbacks to the CPU: failures of a CUDA device, and the first time that its "
                 "memory is full");
  prometheus::Counter* const cpu_seconds_ =
      AddCounter("process_cpu_seconds_total", "CPU time used");
};

}  // namespace attnbias
