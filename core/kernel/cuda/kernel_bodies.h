// SPDX-License-Identifier: Apache-2.0
// Kernel arguments and geometry, and the work of one thread of each kernel, for the host and device
// compilers. kernels.cu runs this work on a device; tests run it on the CPU, for every block and
// thread in a launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

// Marks functions that run on the CPU and on a CUDA device.
#ifdef __CUDACC__
#define ATTNBIAS_HOST_DEVICE __host__ __device__
#else
#define ATTNBIAS_HOST_DEVICE
#endif

namespace attnbias {

inline constexpr int kThreadsPerBlock = 256;
// Bytes that a thread stores at once; device memory is aligned to this.
inline constexpr int kBytesPerExpandThread = 16;

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
  ATTNBIAS_HOST_DEVICE bool is_range() const { return list.size() == 0 && step == 1; }
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

  ATTNBIAS_HOST_DEVICE int64_t NumberAt(int64_t lane, int64_t query, int64_t key) const {
    return lane * lane_numbers + key_coordinates.At(key) - query_coordinates.At(query);
  }
  // Returns true if `size` keys of a query are consecutive elements of a lane.
  ATTNBIAS_HOST_DEVICE bool IsSlice(int64_t query, int64_t key, int64_t size) const {
    if (key + size > num_keys || !keys.is_range() || !key_coordinates.is_range()) return false;
    const int64_t query_position = queries.At(query);
    const int64_t key_position = keys.At(key);
    const int64_t relative = key_position - query_position;
    const bool has_border = border.size() > 0 &&
                            (query_position == 0 || (key_position <= 0 && key_position + size > 0));
    return relative >= visible_begin && relative + size <= visible_end && !has_border;
  }
  int64_t blocks() const {
    constexpr int64_t kBytes = int64_t{kThreadsPerBlock} * kBytesPerExpandThread;
    return (count * element_bytes + kBytes - 1) / kBytes;
  }
};

// Returns an element of a dense expansion, with the mask and border applied.
template <typename Bits>
ATTNBIAS_HOST_DEVICE Bits ExpandedElement(const ExpansionLaunch& launch, int64_t lane,
                                          int64_t query, int64_t key) {
  const int64_t query_position = launch.queries.At(query);
  const int64_t key_position = launch.keys.At(key);
  const int64_t relative = key_position - query_position;
  if (relative < launch.visible_begin || relative >= launch.visible_end) {
    return static_cast<Bits>(launch.fill_bits);
  }
  if (launch.border.size() > 0 && (query_position == 0 || key_position == 0)) {
    const int kind = query_position != 0 ? 1 : (key_position != 0 ? 0 : 2);
    return launch.border.As<const Bits>()[3 * lane + kind];
  }
  return launch.numbers.As<const Bits>()[launch.NumberAt(lane, query, key)];
}

// Elements that a thread stores at once.
template <typename Bits>
struct alignas(kBytesPerExpandThread) ExpandedElements {
  Bits at[kBytesPerExpandThread / sizeof(Bits)];
};

// Writes consecutive elements of a dense expansion.
template <typename Bits>
ATTNBIAS_HOST_DEVICE void ExpandThread(const ExpansionLaunch& launch, int64_t block, int thread) {
  constexpr int kElements = kBytesPerExpandThread / sizeof(Bits);
  const int64_t store = block * kThreadsPerBlock + thread;
  const int64_t begin = store * kElements;
  if (begin >= launch.count) return;
  const int64_t row = (launch.first + begin) / launch.num_keys;
  int64_t key = launch.first + begin - row * launch.num_keys;
  int64_t lane = row / launch.num_queries;
  int64_t query = row - lane * launch.num_queries;
  const bool is_whole = begin + kElements <= launch.count;
  ExpandedElements<Bits> elements;
  if (is_whole && launch.IsSlice(query, key, kElements)) {
    const int64_t number = launch.NumberAt(lane, query, key);
    for (int i = 0; i < kElements; ++i) {
      elements.at[i] = launch.numbers.As<const Bits>()[number + i];
    }
  } else {
    for (int i = 0; i < kElements; ++i) {
      if (is_whole || begin + i < launch.count) {
        elements.at[i] = ExpandedElement<Bits>(launch, lane, query, key);
      }
      if (++key < launch.num_keys) continue;
      key = 0;
      if (++query < launch.num_queries) continue;
      query = 0;
      ++lane;
    }
  }
  if (is_whole) {
    launch.out.As<ExpandedElements<Bits>>()[store] = elements;
    return;
  }
  for (int i = 0; i < kElements && begin + i < launch.count; ++i) {
    launch.out.As<Bits>()[begin + i] = elements.at[i];
  }
}

}  // namespace attnbias
