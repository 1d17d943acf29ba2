// SPDX-License-Identifier: Apache-2.0
// Arguments and geometry of kernels, for the host and device compilers.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "core/numerics/narrow.h"
#include "core/tensor/data_type.h"

namespace attnbias {

inline constexpr int kThreadsPerBlock = 256;

struct alignas(16) Vector16 {
  uint32_t words[4];
};

// An array in the device's memory. Checks every index if the kernel runs on a CPU.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  DeviceArray(T* data, int64_t size) : data_(data), size_(size) {}

  ATTNBIAS_HOST_DEVICE int64_t size() const { return size_; }
  ATTNBIAS_HOST_DEVICE T& operator[](int64_t index) const {
#ifndef __CUDA_ARCH__
    if (index < 0 || index >= size_) {
      std::fprintf(stderr, "index %lld in an array of length %lld\n", static_cast<long long>(index),
                   static_cast<long long>(size_));
      std::abort();
    }
#endif
    return data_[index];
  }

 private:
  T* data_ = nullptr;
  int64_t size_ = 0;
};

// An IndexMap on the device: a list, or integers `step` apart if the list is empty.
struct DeviceIndexMap {
  int64_t begin = 0;
  int64_t step = 1;
  DeviceArray<const int64_t> list;

  ATTNBIAS_HOST_DEVICE int64_t At(int64_t index) const {
    return list.size() > 0 ? list[index] : begin + index * step;
  }
};

// Elements [first, first + count) of DenseExpansion's flat tensor.
struct ExpansionLaunch {
  // Vectors of the results.
  static constexpr int kVectorsPerThread = 4;
  static constexpr int kVectorsPerBlock = kVectorsPerThread * kThreadsPerBlock;
  // Maximum rows and columns: they are counted in 32 bits, including one additional block.
  static constexpr int64_t kMaxCount = (int64_t{1} << 31) - (1 << 16);

  // Lanes side by side, as words, and one more word.
  DeviceArray<const uint32_t> numbers;
  int64_t lane_numbers = 0;
  int element_bytes = 0;
  uint32_t num_queries = 0;
  uint32_t num_keys = 0;
  DeviceIndexMap query_coordinates;
  DeviceIndexMap key_coordinates;
  DeviceIndexMap queries;
  DeviceIndexMap keys;
  int64_t visible_begin = 0;
  int64_t visible_end = 0;
  uint64_t fill_bits = 0;
  // The words of [lanes, 3] elements, or empty.
  DeviceArray<const uint32_t> border;
  int64_t first = 0;
  int64_t count = 0;
  // The last vector's unused part is undefined.
  DeviceArray<Vector16> out;

  int64_t blocks() const { return (out.size() + kVectorsPerBlock - 1) / kVectorsPerBlock; }
};

// SinusoidBlocks on the device.
struct SinusoidLaunch {
  DeviceArray<const double> anchor_sin;
  DeviceArray<const double> anchor_cos;
  DeviceArray<const double> sin_bound;
  DeviceArray<const double> rotation_sin;
  DeviceArray<const double> rotation_cos;
  double cos_bound = 0;
  int64_t block_rows = 0;
  int64_t rows = 0;
  int64_t pairs = 0;
  int64_t sines = 0;
  int64_t cosines = 0;
  int64_t width = 0;
  int64_t pair_stride = 0;
  int64_t cos_offset = 0;
  DataType type = DataType::kF32;
  // [rows, width] elements.
  DeviceArray<uint32_t> out_f32;
  DeviceArray<uint16_t> out_16;
  // Number of undecided elements, which may exceed the size of `undecided`.
  DeviceArray<uint32_t> undecided_count;
  DeviceArray<uint32_t> undecided;

  int64_t blocks() const { return (rows * width + kThreadsPerBlock - 1) / kThreadsPerBlock; }
};

}  // namespace attnbias
