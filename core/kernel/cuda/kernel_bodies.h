// SPDX-License-Identifier: Apache-2.0
// Arguments and geometry of kernels, and the work of one thread of each kernel, for the host and
// device compilers. kernels.cu runs it on a device; tests run it on the CPU, over every block and
// thread of a launch.
#pragma once

#include <cmath>
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
  // The lanes, one directly after the other.
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
  // Number of undecided elements, then their indices. The number may exceed the room for indices.
  DeviceArray<uint32_t> undecided;

  int64_t blocks() const {
    return (source.block.rows * source.block.width + kThreadsPerBlock - 1) / kThreadsPerBlock;
  }
};

// Writes an element of a dense expansion, with mask and border.
template <typename Bits>
ATTNBIAS_HOST_DEVICE void ExpandThread(const ExpansionLaunch& launch, int64_t block, int thread) {
  const int64_t index = block * kThreadsPerBlock + thread;
  if (index >= launch.count) return;
  const int64_t row = (launch.first + index) / launch.num_keys;
  const int64_t key = launch.first + index - row * launch.num_keys;
  const int64_t lane = row / launch.num_queries;
  const int64_t query = row - lane * launch.num_queries;
  const int64_t query_position = launch.queries.At(query);
  const int64_t key_position = launch.keys.At(key);
  const int64_t relative = key_position - query_position;
  Bits& out = launch.out.As<Bits>()[index];
  if (relative < launch.visible_begin || relative >= launch.visible_end) {
    out = static_cast<Bits>(launch.fill_bits);
  } else if (launch.border.size() > 0 && (query_position == 0 || key_position == 0)) {
    const int kind = query_position != 0 ? 1 : (key_position != 0 ? 0 : 2);
    out = launch.border.As<const Bits>()[3 * lane + kind];
  } else {
    out = launch.numbers
              .As<const Bits>()[lane * launch.lane_numbers + launch.key_coordinates.At(key) -
                                launch.query_coordinates.At(query)];
  }
}

// A CPU runs the threads one after the other; a device needs an atomic.
ATTNBIAS_HOST_DEVICE inline uint32_t FetchIncrement(uint32_t& counter) {
#ifdef __CUDA_ARCH__
  return atomicAdd(&counter, 1U);
#else
  return counter++;
#endif
}

// A column's frequency, and whether it holds the sine or the cosine.
struct SinusoidColumn {
  int64_t pair;
  bool is_sine;
};

ATTNBIAS_HOST_DEVICE inline SinusoidColumn SinusoidColumnAt(const SinusoidBlock& block,
                                                            int64_t column) {
  if (block.pair_stride == 2) return {column / 2, column % 2 == 0};
  if (column < block.sines) return {column, true};
  return {column - block.cos_offset, false};
}

// Computes an element: the sine or cosine of a sum of two angles. Two fused products give the high
// end of the interval that contains it.
template <class Element>
ATTNBIAS_HOST_DEVICE void SinusoidThread(const SinusoidLaunch& launch, int64_t block, int thread) {
  const SinusoidBlock& source = launch.source.block;
  const int64_t block_rows = launch.source.block_rows;
  const int64_t index = block * kThreadsPerBlock + thread;
  if (index >= source.rows * source.width) return;
  const int64_t row = index / source.width;
  const SinusoidColumn column = SinusoidColumnAt(source, index - row * source.width);
  auto& out = launch.out.As<typename Element::Bits>()[index];
  const int64_t anchor_row = row / block_rows;
  const int64_t anchor = anchor_row * source.pairs + column.pair;
  const int64_t rotation = (row - anchor_row * block_rows) * source.pairs + column.pair;
  const double bound = column.is_sine ? launch.sin_bound[anchor] : source.cos_bound;
  const double anchor_sin = launch.anchor_sin[anchor];
  const double anchor_cos = launch.anchor_cos[anchor];
  const double sin = launch.rotation_sin[rotation];
  const double cos = launch.rotation_cos[rotation];
  const double high = column.is_sine ? std::fma(anchor_sin, cos, std::fma(anchor_cos, sin, bound))
                                     : std::fma(-anchor_sin, sin, std::fma(anchor_cos, cos, bound));
  if (RoundInterval<Element>(high, bound + bound, &out)) return;
  const int64_t place = int64_t{1} + FetchIncrement(launch.undecided[0]);
  if (place < launch.undecided.size()) launch.undecided[place] = static_cast<uint32_t>(index);
}

}  // namespace attnbias
