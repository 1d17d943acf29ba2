// SPDX-License-Identifier: Apache-2.0
// Times a chunk of a dense expansion that a CUDA device computes and copies to the host, and the
// copy alone. Compare rates within one run: bytes_per_second.
//
//   cuda_bench --benchmark_format=json --benchmark_repetitions=5
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "benchmark/benchmark.h"
#include "core/kernel/cuda/device.h"

namespace attnbias {
namespace {

constexpr int64_t kLength = 4096;
constexpr int64_t kDiagonals = 2 * kLength - 1;
// A chunk of a response; smaller than [length, length].
constexpr int64_t kChunkBytes = int64_t{2} << 20;

// Returns the result, or exits on an error.
template <typename T>
T Need(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "cuda_bench: %s\n", std::string(result.status().message()).c_str());
  std::exit(1);
}

class Bench {
 public:
  Bench()
      : device_(Need(OpenCudaDevice())),
        diagonals_(Need(device_->Allocate(kDiagonals * 4))),
        made_(Need(device_->Allocate(kChunkBytes))),
        received_(Need(device_->AllocateHost(kChunkBytes))),
        stream_(Need(device_->NewStream())) {}

  // Computes a chunk of [length, length] from diagonals. The diagonals' values do not matter.
  absl::Status Expand(int element_bytes) {
    ExpansionLaunch launch;
    launch.numbers = {diagonals_.get(), kDiagonals * element_bytes};
    launch.lane_numbers = kDiagonals;
    launch.element_bytes = element_bytes;
    launch.num_queries = kLength;
    launch.num_keys = kLength;
    launch.key_coordinates.begin = kLength - 1;
    launch.visible_begin = -kLength;
    launch.visible_end = kLength;
    launch.count = kChunkBytes / element_bytes;
    launch.out = {made_.get(), kChunkBytes};
    return stream_->Launch(launch);
  }

  absl::Status Receive() {
    ATTNBIAS_RETURN_IF_ERROR(stream_->CopyOut(received_.get(), made_.get(), kChunkBytes));
    return stream_->Wait();
  }

  const Device& device() const { return *device_; }

 private:
  const std::unique_ptr<Device> device_;
  const SharedMemory diagonals_;
  const SharedMemory made_;
  const SharedMemory received_;           // in the host's memory
  const std::unique_ptr<Stream> stream_;  // destroyed first; waits for its work
};

// Times chunks from when `work` starts to compute them until they are in the host's memory.
void Register(const std::string& name, Bench* bench, std::function<absl::Status()> work) {
  benchmark::RegisterBenchmark(name.c_str(), [bench, work](benchmark::State& state) {
    for (auto _ : state) {
      absl::Status status = work();
      status.Update(bench->Receive());
      if (!status.ok()) return state.SkipWithError(std::string(status.message()).c_str());
    }
    state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * kChunkBytes);
  })->UseRealTime();
}

}  // namespace
}  // namespace attnbias

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  attnbias::Bench bench;
  std::fprintf(stderr, "%s\n", bench.device().description().c_str());
  attnbias::Register("copy", &bench, [] { return absl::OkStatus(); });
  attnbias::Register("expand/F32", &bench, [&bench] { return bench.Expand(4); });
  attnbias::Register("expand/BF16", &bench, [&bench] { return bench.Expand(2); });
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
