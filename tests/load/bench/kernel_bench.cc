// SPDX-License-Identifier: Apache-2.0
// Times core on one thread, and memset and memcpy of the same number of bytes, on memory already
// touched. Compare rates within one run: bytes_per_second, by CPU time.
//
//   kernel_bench --benchmark_format=json --benchmark_repetitions=5
#include <cstdint>
#include <cstring>
#include <string>

#include "benchmark/benchmark.h"
#include "core/cache/byte_budget.h"
#include "core/encoding/encoding.h"

namespace attnbias {
namespace {

constexpr int64_t kPositions = 131072;
constexpr int kDim = 512;
constexpr int64_t kTableBytes = kPositions * kDim * 4;
constexpr int64_t kHeads = 32;
constexpr int64_t kLength = 4096;

// Not 0: some processors skip writing zeros over zeros.
constexpr int kFill = 0x5A;

// Touched on first use, before any measurement. Large enough for the dense F32 bias.
AlignedBuffer& Destination() {
  static AlignedBuffer buffer = [] {
    AlignedBuffer memory(kHeads * kLength * kLength * 4);
    std::memset(memory.data(), 1, memory.size());
    return memory;
  }();
  return buffer;
}

void CountBytes(benchmark::State& state, int64_t bytes) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * bytes);
}

void Memset(benchmark::State& state) {
  const int64_t bytes = state.range(0);
  std::byte* out = Destination().data();
  for (auto _ : state) {
    std::memset(out, kFill, bytes);
    benchmark::ClobberMemory();
  }
  CountBytes(state, bytes);
}

void Memcpy(benchmark::State& state) {
  const int64_t bytes = state.range(0);
  std::byte* out = Destination().data();
  for (auto _ : state) {
    std::memcpy(out, out + bytes, bytes);
    benchmark::ClobberMemory();
  }
  CountBytes(state, bytes);
}

EncodingPtr Sinusoids(v1::Columns columns = v1::COLUMNS_INTERLEAVED) {
  v1::TensorSpec spec;
  spec.mutable_sinusoidal()->set_dim(kDim);
  spec.mutable_sinusoidal()->set_columns(columns);
  return *MakeEncoding({}, spec);
}

// A whole table, including all preparation.
void SinusoidFill(benchmark::State& state, const KernelSet& kernels, DataType type,
                  v1::Columns columns) {
  const EncodingPtr encoding = Sinusoids(columns);
  std::byte* out = Destination().data();
  for (auto _ : state) {
    encoding->prepare({type}, kernels)->Fill({{0, 1}, {0, kPositions}}, out, 0);
    benchmark::ClobberMemory();
  }
  CountBytes(state, kPositions * kDim * SizeOf(type));
}

void SinusoidPrepare(benchmark::State& state, const KernelSet& kernels) {
  const EncodingPtr encoding = Sinusoids();
  for (auto _ : state) {
    benchmark::DoNotOptimize(encoding->prepare({DataType::kF32}, kernels));
  }
}

// [heads, length, length] from diagonals.
void DenseExpansion(benchmark::State& state, const KernelSet& kernels, DataType type) {
  const int64_t size = SizeOf(type);
  const int64_t diagonals_bytes = (2 * kLength - 1) * size;
  AlignedBuffer diagonals(kHeads * diagonals_bytes);
  std::memset(diagonals.data(), 2, diagonals.size());
  std::byte* out = Destination().data();
  const int64_t matrix_bytes = kLength * kLength * size;
  for (auto _ : state) {
    for (int64_t head = 0; head < kHeads; ++head) {
      kernels.expand_rows(diagonals.data() + head * diagonals_bytes + (kLength - 1) * size, -size,
                          out + head * matrix_bytes, kLength, kLength * size);
    }
    benchmark::ClobberMemory();
  }
  CountBytes(state, kHeads * matrix_bytes);
}

void AlibiFill(benchmark::State& state, const KernelSet& kernels, DataType type) {
  v1::TensorSpec spec;
  spec.mutable_alibi()->set_num_heads(24);
  const EncodingPtr encoding = *MakeEncoding({}, spec);
  std::byte* out = Destination().data();
  const Range span = {1 - kLength, kLength};
  for (auto _ : state) {
    encoding->prepare({type}, kernels)->Fill({{0, 24}, span}, out, span.size() * SizeOf(type));
    benchmark::ClobberMemory();
  }
  CountBytes(state, 24 * span.size() * SizeOf(type));
}

void RegisterFor(const KernelSet& kernels) {
  using benchmark::RegisterBenchmark;
  const std::string set(kernels.name);
  const auto named = [&](const char* what, DataType type) {
    return set + "/" + what + "/" + std::string(NameOf(type));
  };
  for (const DataType type : {DataType::kF64, DataType::kF32, DataType::kF16, DataType::kBF16}) {
    RegisterBenchmark(named("sinusoid_interleaved", type).c_str(), [&kernels, type](auto& s) {
      SinusoidFill(s, kernels, type, v1::COLUMNS_INTERLEAVED);
    });
    RegisterBenchmark(named("sinusoid_sines_first", type).c_str(), [&kernels, type](auto& s) {
      SinusoidFill(s, kernels, type, v1::COLUMNS_SINES_COSINES);
    });
  }
  for (const DataType type : {DataType::kF32, DataType::kBF16}) {
    RegisterBenchmark(named("dense", type).c_str(),
                      [&kernels, type](auto& s) { DenseExpansion(s, kernels, type); });
    RegisterBenchmark(named("alibi", type).c_str(),
                      [&kernels, type](auto& s) { AlibiFill(s, kernels, type); });
  }
  RegisterBenchmark((set + "/sinusoid_prepare").c_str(),
                    [&kernels](auto& s) { SinusoidPrepare(s, kernels); });
}

void RegisterAll() {
  benchmark::RegisterBenchmark("memset/table", Memset)->Arg(kTableBytes);
  benchmark::RegisterBenchmark("memcpy/table", Memcpy)->Arg(kTableBytes);
  const int64_t dense = kHeads * kLength * kLength;
  benchmark::RegisterBenchmark("memset/dense_F32", Memset)->Arg(dense * 4);
  benchmark::RegisterBenchmark("memset/dense_BF16", Memset)->Arg(dense * 2);
  for (const KernelSet* kernels : SupportedKernelSets()) RegisterFor(*kernels);
}

}  // namespace
}  // namespace attnbias

int main(int argc, char** argv) {
  attnbias::Destination();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  attnbias::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
