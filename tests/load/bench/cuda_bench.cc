// SPDX-License-Identifier: Apache-2.0
// The CUDA device alone, with results left in its memory, compared with setting that memory.
// Compare rates of one run: bytes_per_second.
//
//   cuda_bench --benchmark_format=json --benchmark_repetitions=5
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "core/kernel/cuda/device.h"

namespace attnbias {
namespace {

constexpr int64_t kHeads = 32;
constexpr int64_t kLength = 4096;
// Launches between two clock readings, so that waiting costs nothing.
constexpr int kLaunches = 8;

// Returns the result, or exits on an error.
template <typename T>
T Need(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "cuda_bench: %s\n", std::string(result.status().message()).c_str());
  std::exit(1);
}

// Times the work that `work` puts on the stream, repeated many times.
template <typename Work>
void Measure(benchmark::State& state, Stream& stream, int64_t bytes, Work work) {
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    absl::Status status;
    for (int i = 0; i < kLaunches; ++i) status.Update(work());
    status.Update(stream.Wait());
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (!status.ok()) {
      state.SkipWithError(std::string(status.message()).c_str());
      return;
    }
    state.SetIterationTime(elapsed.count() / kLaunches);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * bytes);
}

class Bench {
 public:
  Bench()
      : device_(Need(OpenCudaDevice())),
        stream_(Need(device_->NewStream())),
        out_(Need(device_->Allocate(kHeads * kLength * kLength * 4))),
        diagonals_(Need(device_->Allocate(kDiagonals * 4))) {
    std::vector<std::byte> diagonals(kDiagonals * 4, std::byte{2});
    // Waits below, before these are destroyed.
    absl::Status status = stream_->CopyIn(diagonals_.get(), diagonals.data(), kDiagonals * 4);
    status.Update(stream_->Wait());
    Need(status.ok() ? absl::StatusOr<int>(0) : absl::StatusOr<int>(status));
  }

  void Set(benchmark::State& state, int element_bytes) {
    const int64_t bytes = kHeads * kLength * kLength * element_bytes;
    Measure(state, *stream_, bytes, [&] { return stream_->SetZero(out_.get(), bytes); });
  }

  // [heads, length, length] from diagonals.
  void Expand(benchmark::State& state, int element_bytes) {
    const int64_t count = kHeads * kLength * kLength;
    const int64_t bytes = count * element_bytes;
    ExpansionLaunch launch;
    launch.numbers = {diagonals_.get(), kDiagonals * element_bytes};
    launch.lane_numbers = 2 * kLength - 1;
    launch.element_bytes = element_bytes;
    launch.num_queries = kLength;
    launch.num_keys = kLength;
    launch.key_coordinates.begin = kLength - 1;
    launch.visible_begin = -kLength;
    launch.visible_end = kLength;
    launch.count = count;
    launch.out = {out_.get(), bytes};
    Measure(state, *stream_, bytes, [&] { return stream_->Launch(launch); });
  }

  const Device& device() const { return *device_; }

 private:
  static constexpr int64_t kDiagonals = kHeads * (2 * kLength - 1);

  const std::unique_ptr<Device> device_;
  const std::unique_ptr<Stream> stream_;
  const SharedMemory out_;
  const SharedMemory diagonals_;
};

void RegisterAll(Bench* bench) {
  for (const auto& [type, size] : {std::pair("F32", 4), {"BF16", 2}}) {
    const std::string name(type);
    benchmark::RegisterBenchmark(("memset/" + name).c_str(), [bench, size = size](auto& state) {
      bench->Set(state, size);
    })->UseManualTime();
    benchmark::RegisterBenchmark(("expand/" + name).c_str(), [bench, size = size](auto& state) {
      bench->Expand(state, size);
    })->UseManualTime();
  }
}

}  // namespace
}  // namespace attnbias

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  attnbias::Bench bench;
  std::fprintf(stderr, "%s\n", bench.device().description().c_str());
  attnbias::RegisterAll(&bench);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
