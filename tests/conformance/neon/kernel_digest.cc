// SPDX-License-Identifier: Apache-2.0
// Runs every kernel set in this binary that the CPU supports, all on the same inputs, and prints a
// digest of each output, one line per set: "name digest". Equal digests mean equal bits. Depends
// only on the kernels, so that it can be cross-compiled.
#include <array>
#include <cstdio>
#include <string_view>
#include <vector>

#include "core/kernel/kernel_set.h"

namespace attnbias {
namespace {

constexpr int64_t kPairs = 64;
constexpr int64_t kRows = 61;

class Digest {
 public:
  void Add(const void* data, size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < size; ++i) {
      value_ = (value_ ^ bytes[i]) * 0x100000001B3;  // FNV-1a
    }
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xCBF29CE484222325;
};

bool RunsHere(std::string_view name) {
#if defined(__x86_64__)
  if (name == "avx512") {
    return __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
           __builtin_cpu_supports("avx512vl") != 0;
  }
  if (name == "avx2") {
    return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  }
#endif
  return name == "neon" || name == "scalar";
}

// Points on the unit circle, computed from integers alone so as not to depend on any machine's
// sine. The low parts are noise of realistic magnitude.
template <int64_t kCount>
struct Angles {
  alignas(64) double sin_hi[kCount];
  alignas(64) double sin_lo[kCount];
  alignas(64) double cos_hi[kCount];
  alignas(64) double cos_lo[kCount];

  explicit Angles(uint64_t seed) {
    for (int64_t i = 0; i < kCount; ++i) {
      seed = seed * 6364136223846793005 + 1442695040888963407;
      const double t = static_cast<double>(seed >> 11) * 0x1p-53;
      const double norm = 1 + t * t;
      sin_hi[i] = 2 * t / norm;
      cos_hi[i] = (1 - t * t) / norm;
      sin_lo[i] = sin_hi[i] * 0x1p-55;
      cos_lo[i] = cos_hi[i] * -0x1p-56;
    }
  }

  Rotors rotors() { return {sin_hi, sin_lo, cos_hi, cos_lo}; }
};

struct Inputs {
  Angles<kPairs> anchor{1};
  Angles<kRows * kPairs> rotations{2};
  alignas(64) std::array<double, kPairs> bound;

  Inputs() { bound.fill(kRotationBound); }

  SinusoidBlock Block(bool interleaved) const {
    return {.anchor_sin = anchor.sin_hi,
            .anchor_cos = anchor.cos_hi,
            .rotation_sin = rotations.sin_hi,
            .rotation_cos = rotations.cos_hi,
            .sin_bound = bound.data(),
            .cos_bound = kRotationBound,
            .rows = kRows,
            .pairs = kPairs,
            .sines = kPairs,
            .cosines = kPairs,
            .width = 2 * kPairs,
            .pair_stride = interleaved ? 2 : 1,
            .cos_offset = interleaved ? 1 : kPairs,
            .stream = false};
  }
};

// Elements whose rounding a set cannot decide may differ between sets. The inputs have no such
// elements, as the count verifies.
template <typename Element>
void AddFill(const Inputs& inputs, FillSinusoid<Element> fill, Digest& digest) {
  for (const bool interleaved : {true, false}) {
    std::vector<Element> out(kRows * 2 * kPairs + 2 * kPairMultiple);
    std::vector<uint32_t> undecided(2 * kRows * kPairs);
    const int64_t count = fill(inputs.Block(interleaved), out.data(), undecided.data());
    digest.Add(&count, sizeof(count));
    digest.Add(out.data(), kRows * 2 * kPairs * sizeof(Element));
  }
}

// Double-doubles may differ in their last bits, but not in their rounded values.
void AddRotation(Inputs& inputs, const KernelSet& kernels, Digest& digest) {
  Angles<kPairs> out(3);
  const Rotors rotors = out.rotors();
  kernels.rotate(AsConst(inputs.anchor.rotors()), AsConst(inputs.rotations.rotors()), rotors,
                 kPairs);
  digest.Add(out.sin_hi, sizeof(out.sin_hi));
  digest.Add(out.cos_hi, sizeof(out.cos_hi));
}

void AddSums(const Inputs& inputs, const KernelSet& kernels, Digest& digest) {
  constexpr int64_t kWidth = kPairs - 1;
  std::array<double, kWidth> sums = {};
  kernels.add_products(inputs.anchor.cos_hi, {inputs.rotations.sin_hi, kPairs, kRows}, sums.data(),
                       kWidth);
  digest.Add(sums.data(), sizeof(sums));
}

void AddCopies(const Inputs& inputs, const KernelSet& kernels, Digest& digest) {
  const auto* source = reinterpret_cast<const std::byte*>(inputs.rotations.sin_hi);
  constexpr int64_t kRowBytes = 8191;
  constexpr int64_t kNumRows = kStreamingBytes / kRowBytes + 2;
  std::vector<std::byte> out(kNumRows * kRowBytes);
  kernels.expand_rows(source + 2 * kNumRows, -2, out.data(), kNumRows, kRowBytes);
  digest.Add(out.data(), out.size());
  kernels.stream(source + 3, out.data() + 5, 9999);
  kernels.end_streaming();
  digest.Add(out.data(), 10010);
}

void Print(const KernelSet& kernels) {
  Inputs inputs;
  Digest digest;
  AddFill(inputs, kernels.fill_sinusoid_f32, digest);
  AddFill(inputs, kernels.fill_sinusoid_bf16, digest);
  AddFill(inputs, kernels.fill_sinusoid_f16, digest);
  AddRotation(inputs, kernels, digest);
  AddSums(inputs, kernels, digest);
  AddCopies(inputs, kernels, digest);
  std::printf("%.*s %016llx\n", static_cast<int>(kernels.name.size()), kernels.name.data(),
              static_cast<unsigned long long>(digest.value()));
}

}  // namespace
}  // namespace attnbias

int main() {
  for (const attnbias::BuiltKernelSet& built : attnbias::BuiltKernelSets()) {
    if (attnbias::RunsHere(built.kernels.name)) attnbias::Print(built.kernels);
  }
}
