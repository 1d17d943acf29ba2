// SPDX-License-Identifier: Apache-2.0
// Arguments and geometry of kernels, for the host and device compilers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "core/kernel/kernel_set.h"
#include "core/numerics/narrow.h"
#include "core/tensor/data_type.h"

namespace attnbias {

inline constexpr int kThreadsPerBlock = 256;

// An array in the device's memory. Checks every index if the kernel runs on a CPU.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  ATTNBIAS_HOST_DEVICE DeviceArray(T* data, int64_t size) : data_(data), size_(size) {}

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

  // Returns the bytes of this array as elements of another type.
  template <typename Element>
  ATTNBIAS_HOST_DEVICE DeviceArray<Element> As() const {
    return {reinterpret_cast<Element*>(data_), size_ / static_cast<int64_t>(sizeof(Element))};
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
  // Lanes side by side.
  DeviceArray<const std::byte> numbers;
  int64_t lane_numbers = 0;
  int64_t element_bytes = 0;
  int64_t num_queries = 0;
  int64_t num_keys = 0;
  DeviceIndexMap query_coordinates;
  DeviceIndexMap key_coordinates;
  DeviceIndexMap queries;
  DeviceIndexMap keys;
  int64_t visible_begin = 0;
  int64_t visible_end = 0;
  uint64_t fill_bits = 0;
  // [lanes, 3] elements, or empty.
  DeviceArray<const std::byte> border;
  int64_t first = 0;
  int64_t count = 0;
  DeviceArray<std::byte> out;

  int64_t blocks() const { return (count + kThreadsPerBlock - 1) / kThreadsPerBlock; }
};

// Consecutive blocks of FillSinusoid with the same rotations.
struct SinusoidBlocks {
  // Here anchor_sin, anchor_cos and sin_bound are [blocks, pairs], and `rows` counts the rows of
  // all blocks. All blocks except the last have block_rows.
  SinusoidBlock block;
  int64_t block_rows = 0;
  // F32, F16 or BF16.
  DataType type = DataType::kF32;
};

// SinusoidBlocks on the device.
struct SinusoidLaunch {
  // The arrays are in the host's memory.
  SinusoidBlocks source;
  DeviceArray<const double> anchor_sin;
  DeviceArray<const double> anchor_cos;
  DeviceArray<const double> sin_bound;
  DeviceArray<const double> rotation_sin;
  DeviceArray<const double> rotation_cos;
  // [rows, width] elements.
  DeviceArray<std::byte> out;
  // Number of undecided elements, which may exceed the room for their indices, followed by these
  // indices.
  DeviceArray<uint32_t> undecided;

  int64_t blocks() const {
    return (source.block.rows * source.block.width + kThreadsPerBlock - 1) / kThreadsPerBlock;
  }
};

}  // namespace attnbias
